// The option structs of the C ABI, checked and in the library's own types. Units, defaults and reasons:
// include/commpool/commpool.h. Any thread.
//
// Whatever is wrong is kInvalidArgument and names the option, its value and what it may be.
#ifndef COMMPOOL_SRC_C_API_OPTIONS_H_
#define COMMPOOL_SRC_C_API_OPTIONS_H_

#include <cstdint>
#include <optional>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/pool/options.h"
#include "src/pool/scope_table.h"
#include "src/pool/settings/settings.h"

namespace commpool::internal {

inline constexpr size_t kMostPeers = 1024;  // of any machine: a pool knows how many this one has

// With what the environment sets where the program has not. Checks what can be told without a driver.
Result<PoolConfiguration> ParsePoolOptions(const commpool_pool_options& given, const Settings& settings = {});

// How a symmetric pool's other ranks are reached, whatever else is wrong with the options: nothing where they name no
// home, or are no such struct. The rest are defaults.
std::optional<PoolConfiguration> ParseHome(const commpool_pool_options& given);

// By the numbers of a commpool_keep and a commpool_graphs (NumberOf). What is wrong with them is in it.
SleepRequest ParseSleep(int32_t keep, int32_t graphs);

// Null is the defaults. The pool is the caller's to set.
Result<ScopeRequest> ParseScopeOptions(const commpool_scope_options* given);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_C_API_OPTIONS_H_
