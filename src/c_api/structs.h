// Structs, arrays and enumerations of programs. Until 1.0 their sizes are this library's, or the program was built with
// another minor version and is refused (conventions 9 and 11 of commpool.h). Any thread.
#ifndef COMMPOOL_SRC_C_API_STRUCTS_H_
#define COMMPOOL_SRC_C_API_STRUCTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <string>

#include "commpool/status.h"

namespace commpool::internal {

// Whether a program's commpool_`name` has the size of ours. kInvalidArgument names both sizes, and our version.
Status CheckStructBytes(const std::string& name, size_t given_bytes, size_t own_bytes);

// The same of an entry of an array, whose size a call is given.
Status CheckEntryBytes(const std::string& name, size_t given_bytes, size_t own_bytes);

// The number in a program's enumeration, which may be none of its enumerators: C++ lets nobody read such a one, so a
// place that holds one is read by this alone, also where it is an argument.
template <typename Word>
int32_t NumberOf(const Word& word) {
  static_assert(sizeof(Word) == sizeof(int32_t));
  int32_t number = 0;
  std::memcpy(&number, &word, sizeof(number));
  return number;
}

// Whether the number of a word is below that of the words that there are. kInvalidArgument names them.
Status CheckWord(const std::string& what, int32_t number, std::initializer_list<const char*> words);

// A word of a program's by its number, in our own enumeration, which has the same numbers.
template <typename OwnWord>
Status ReadWord(const std::string& what, int32_t number, std::initializer_list<const char*> words, OwnWord* own) {
  Status status = CheckWord(what, number, words);
  if (status.ok()) *own = static_cast<OwnWord>(number);
  return status;
}

inline Status FirstFailure(std::initializer_list<Status> statuses) {
  for (const Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return Status();
}

// Where a call that lists things writes them: `entries` or `count` may be null.
template <typename Entry>
struct EntryArray {
  Entry* entries;
  size_t entry_bytes;
  size_t capacity;
  size_t* count;

  Status Check(const std::string& name) const {
    if (entries != nullptr) return CheckEntryBytes(name, entry_bytes, sizeof(Entry));
    if (count != nullptr) return Status();
    return Status(StatusCode::kInvalidArgument, "the output pointers are null: there is nothing to answer");
  }

  // As many as there is room for, of what `entry_of` makes of them, and how many there are.
  template <typename List, typename EntryOf = std::identity>
  void Write(const List& list, EntryOf entry_of = {}) const {
    const size_t written = entries == nullptr ? 0 : std::min(capacity, list.size());
    std::transform(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(written), entries, entry_of);
    if (count != nullptr) *count = list.size();
  }
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_C_API_STRUCTS_H_
