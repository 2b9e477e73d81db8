// The C ABI: libraries beside NCCL that register a pool's segments (registrar.h).
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "commpool/registrar.h"
#include "src/library/base/printable.h"
#include "src/library/c_api/boundary.h"
#include "src/library/c_api/for_pools.h"
#include "src/library/c_api/structs.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

Result<std::string> ReadName(const char* name) {
  if (name == nullptr || *name == 0) return Invalid("the registrar's name is null or empty");
  if (strnlen(name, kMostNameBytes + 1) > kMostNameBytes) {
    return Invalid("the registrar's name is longer than " + std::to_string(kMostNameBytes) + " bytes");
  }
  return Printable(name);
}

RegistrarRequest ReadRegistrar(const commpool_registrar* given) {
  if (given == nullptr) return std::optional<Registrar>();
  const Status size = CheckStructBytes("registrar", given->struct_bytes, sizeof(*given));
  if (!size.ok()) return size;
  Result<std::string> name = ReadName(given->name);
  if (!name.ok()) return name.status();
  if (given->add == nullptr || given->remove == nullptr) {
    return Invalid("registrar " + *name + " needs both functions, add and remove");
  }
  Registrar registrar{.name = std::move(*name), .functions = *given};
  registrar.functions.name = nullptr;
  return std::optional<Registrar>(std::move(registrar));
}

}  // namespace

commpool_status commpool_pools_add_registrar(const commpool_pool* pools, const commpool_registrar* const* registrars,
                                             size_t count) {
  if (registrars == nullptr) return Report(Invalid("registrars is null: there is one a pool, each may be null"));
  return ForEachPool(pools, count, [&](Pool& pool, size_t place) {
    return pool.mode().AddRegistrar(ReadRegistrar(registrars[place]));
  });
}

commpool_status commpool_pools_remove_registrar(const commpool_pool* pools, size_t count, const char* name) {
  return ForEachPool(pools, count, [&](Pool& pool, size_t) -> Status {
    const Result<std::string> read = ReadName(name);
    return read.ok() ? pool.mode().RemoveRegistrar(*read) : read.status();
  });
}
