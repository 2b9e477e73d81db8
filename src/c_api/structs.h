// Structs across versions (conventions 9 and 11 of commpool.h): a program says how long the struct is that it was
// compiled with; whichever of program and library is newer, both keep to what the other has. Any thread.
#ifndef COMMPOOL_SRC_C_API_STRUCTS_H_
#define COMMPOOL_SRC_C_API_STRUCTS_H_

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "commpool/status.h"

namespace commpool::internal {

// A struct of commpool.h as messages name it, and what its first version had.
struct StructName {
  const char* what;  // "pool options"
  const char* init;  // the function that sets struct_bytes
  size_t first_bytes;
};

// Whether `given_bytes` can be the size of that struct, in this version or another.
Status CheckStructBytes(const StructName& name, size_t given_bytes);

// Whether what a newer program's struct has beyond the `known_bytes` of this library is left at 0, its default.
Status CheckUnknownBytes(const StructName& name, const void* given, size_t given_bytes, size_t known_bytes);

// What the program has set, over `defaults`.
template <typename Struct>
Result<Struct> ReadStruct(const StructName& name, const Struct* given, const Struct& defaults) {
  Status status = CheckStructBytes(name, given->struct_bytes);
  if (status.ok()) status = CheckUnknownBytes(name, given, given->struct_bytes, sizeof(Struct));
  if (!status.ok()) return status;
  Struct read = defaults;
  std::memcpy(&read, given, std::min(given->struct_bytes, sizeof(Struct)));
  read.struct_bytes = sizeof(Struct);
  return read;
}

// Writes `bytes` of an answer of `known_bytes` to a program's struct or array entry: what the program does not know
// stays away, and what this library does not know is 0.
void WriteBytes(const void* answer, size_t known_bytes, void* given, size_t bytes);

// The answer in a struct whose struct_bytes the program has set, and keeps.
template <typename Struct>
Status WriteStruct(const StructName& name, Struct answer, Struct* given) {
  const size_t bytes = given->struct_bytes;
  Status status = CheckStructBytes(name, bytes);
  if (!status.ok()) return status;
  answer.struct_bytes = bytes;
  WriteBytes(&answer, sizeof(answer), given, bytes);
  return Status();
}

// An entry of a program's array, indexed by the program's size of one.
template <typename Struct>
Struct* EntryAt(Struct* array, size_t entry_bytes, size_t place) {
  using Byte = std::conditional_t<std::is_const_v<Struct>, const char, char>;
  return reinterpret_cast<Struct*>(reinterpret_cast<Byte*>(array) + entry_bytes * place);
}

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_C_API_STRUCTS_H_
