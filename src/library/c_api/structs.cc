#include "src/library/c_api/structs.h"

#include "commpool/commpool.h"

namespace commpool::internal {

namespace {

Status Check(const std::string& what, size_t given_bytes, size_t own_bytes, const std::string& remedy) {
  if (given_bytes == own_bytes) return Status();
  return InvalidArgument(what, " is ", given_bytes, ", and commpool ", COMMPOOL_VERSION_MAJOR, ".",
                         COMMPOOL_VERSION_MINOR, ".", COMMPOOL_VERSION_PATCH, " has ", own_bytes, ": ", remedy,
                         ", or build the program with this version of commpool");
}

}  // namespace

Status CheckStructBytes(const std::string& name, size_t given_bytes, size_t own_bytes) {
  std::string words = name;
  std::replace(words.begin(), words.end(), '_', ' ');
  return Check(words + ": struct_bytes", given_bytes, own_bytes,
               "call commpool_" + name + "_init before anything else is set");
}

Status CheckEntryBytes(const std::string& name, size_t given_bytes, size_t own_bytes) {
  return Check("entry_bytes", given_bytes, own_bytes, "pass sizeof(commpool_" + name + ")");
}

Status CheckWord(const std::string& what, int32_t number, std::initializer_list<const char*> words) {
  if (number >= 0 && number < static_cast<int32_t>(words.size())) return Status();
  std::string known;
  for (const char* const word : words) known += (known.empty() ? "" : ", ") + std::string(word);
  return InvalidArgument(what, " ", number, " is none of ", known);
}

}  // namespace commpool::internal
