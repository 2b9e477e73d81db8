// Option structs across versions (convention 9 of commpool.h): a struct grows at its end, and says how long it is. Any
// thread.
#ifndef COMMPOOL_SRC_C_API_OPTION_STRUCTS_H_
#define COMMPOOL_SRC_C_API_OPTION_STRUCTS_H_

#include <cstddef>
#include <cstring>

namespace commpool::internal {

// Copies what a program of this version or an older one has set over the defaults in `options`. False where the struct
// was never initialised or is a newer version's: `first_bytes` is what the first version had.
template <typename Options>
bool ReadOptions(const Options& given, size_t first_bytes, Options* options) {
  if (given.struct_bytes < first_bytes || given.struct_bytes > sizeof(Options)) return false;
  std::memcpy(options, &given, given.struct_bytes);
  options->struct_bytes = sizeof(Options);
  return true;
}

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_C_API_OPTION_STRUCTS_H_
