#include "src/library/c_api/structs.h"

#include "commpool/commpool.h"

namespace commpool::internal {

namespace {

Status Check(const std::string& what, size_t given_bytes, size_t own_bytes, const std::string& remedy) {
  if (given_bytes == own_bytes) return Status();
  const std::string version = std::to_string(COMMPOOL_VERSION_MAJOR) + "." + std::to_string(COMMPOOL_VERSION_MINOR) +
                              "." + std::to_string(COMMPOOL_VERSION_PATCH);
  return Invalid(what + " is " + std::to_string(given_bytes) + ", and commpool " + version + " has " +
                 std::to_string(own_bytes) + ": " + remedy + ", or build the program with this version of commpool");
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
  return Invalid(what + " " + std::to_string(number) + " is none of " + known);
}

}  // namespace commpool::internal
