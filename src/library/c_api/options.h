// Checks the option structs of the C ABI and converts them to the library's own types. Units, defaults and reasons:
// include/commpool/commpool.h. Any thread.
//
// A wrong option is kInvalidArgument; the message has its name, its value and the allowed values.
#pragma once

#include <cstdint>
#include <optional>

#include "commpool/commpool.h"
#include "commpool/kept.h"
#include "commpool/status.h"
#include "src/library/base/function_ref.h"
#include "src/library/pool/options.h"
#include "src/library/pool/scope_table.h"
#include "src/library/pool/settings/settings.h"

namespace commpool::internal {

inline constexpr size_t kMostPeers = 1024;  // more than any machine has; the pool checks against this machine's number

// Adds what the environment sets and the program has not. Checks what needs no driver.
Result<PoolConfiguration> ParsePoolOptions(const commpool_pool_options& given, const Settings& settings = {});

// Reads only the options that say how to reach a symmetric pool's other ranks; every other option has its default. It
// works even where other options are wrong, so that the other ranks can be told of those. Nothing where the options
// name no home, or have another size than ours.
std::optional<PoolConfiguration> ParseHome(const commpool_pool_options& given);

// Takes the numbers of a commpool_graphs and a commpool_retain (NumberOf). The request says what is wrong with them.
SleepRequest ParseWake(int32_t graphs, int32_t retain);
// Reads sleep options; the request says what is wrong with them. `is_live`: whether a pointer lies in a live block.
SleepRequest ParseSleepOptions(const commpool_sleep_options* given, FunctionRef<Status(const void*)> is_live);

// Null means the defaults. The caller sets the pool.
Result<ScopeRequest> ParseScopeOptions(const commpool_scope_options* given);

}  // namespace commpool::internal
