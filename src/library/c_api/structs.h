// Checks structs, arrays and enumerations of programs. Until 1.0 their sizes must be this library's: another size means
// that the program was built with another minor version, and is refused (conventions 9 and 11 of commpool.h). Any
// thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>

#include "src/library/base/failure.h"
#include "src/library/base/try.h"

namespace commpool::internal {

// Whether a program's commpool_`name` has the size of ours. kInvalidArgument names both sizes, and our version.
Status CheckStructBytes(const std::string& name, size_t given_bytes, size_t own_bytes);

// CheckStructBytes for the entries of an array.
Status CheckEntryBytes(const std::string& name, size_t given_bytes, size_t own_bytes);

// The number of a program's enumeration, which may be no enumerator. C++ forbids reading such a value as an
// enumeration, so everything reads it by this function, even arguments.
template <typename Word>
int32_t NumberOf(const Word& word) {
  static_assert(sizeof(Word) == sizeof(int32_t));
  int32_t number = 0;
  std::memcpy(&number, &word, sizeof(number));
  return number;
}

// Whether the number belongs to a word. kInvalidArgument lists the words.
Status CheckWord(const std::string& what, int32_t number, std::initializer_list<const char*> words);

// Converts a word of a program's enumeration, or its number, to our own enumeration, which has the same numbers.
template <typename OwnWord, typename Word>
Status ReadWord(const std::string& what, const Word& word, std::initializer_list<const char*> words, OwnWord* own) {
  const int32_t number = NumberOf(word);  // read once: the number that is checked is the one that is taken
  Status status = CheckWord(what, number, words);
  if (status.ok()) *own = static_cast<OwnWord>(number);
  return status;
}

// ReadWord for an argument.
template <typename OwnWord, typename Word>
Result<OwnWord> WordOf(const std::string& what, const Word& word, std::initializer_list<const char*> words) {
  OwnWord own{};
  COMMPOOL_TRY(ReadWord(what, word, words, &own));
  return own;
}

// The output arrays of a call that lists things: `entries` or `count` may be null.
template <typename Entry>
struct EntryArray {
  Entry* entries;
  size_t entry_bytes;
  size_t capacity;
  size_t* count;

  Status Check(const std::string& name) const {
    if (entries != nullptr) return CheckEntryBytes(name, entry_bytes, sizeof(Entry));
    if (count != nullptr) return Status();
    return InvalidArgument("the output pointers are null: there is nothing to answer");
  }

  // Writes as many entries as there is room for, each made by `entry_of`, and the number of all.
  template <typename List, typename EntryOf = std::identity>
  void Write(const List& list, EntryOf entry_of = {}) const {
    const size_t written = entries == nullptr ? 0 : std::min(capacity, list.size());
    std::transform(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(written), entries, entry_of);
    if (count != nullptr) *count = list.size();
  }
};

}  // namespace commpool::internal
