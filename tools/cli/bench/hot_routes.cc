#include "tools/cli/bench/hot_routes.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "commpool/scope.h"
#include "src/library/base/try.h"
#include "tools/cli/bench/hot_loops.h"

namespace commpool::cli {

namespace {

struct Route {
  std::string name;
  int scopes = 1;  // only the last one catches; the others are like those around a framework's own
  ScopeOptions options = {};
};

std::vector<Route> AllRoutes(CUstream stream) {
  return {{"none", 0},
          {"thread", 1},
          {"nested", 4},
          {"sizes", 1, {.sizes = {1, uint64_t{1} << 40}}},
          {"stream", 1, {.filter = Filter::kStream, .stream = stream}},
          {"process", 1, {.filter = Filter::kProcess}}};
}

struct Samples {
  std::vector<double> pairs;
  std::vector<double> by_name;
  std::vector<double> added;
  std::vector<double> scopes;
};

// Open scopes. The one begun last ends first.
class OpenScopes {
 public:
  OpenScopes() = default;
  OpenScopes(OpenScopes&&) = default;
  OpenScopes& operator=(OpenScopes&&) = delete;
  ~OpenScopes() {
    while (!scopes_.empty()) scopes_.pop_back();
  }

  Status Begin(const Pool& pool, const ScopeOptions& options) {
    Result<PoolScope> scope = PoolScope::begin(pool, options);
    if (scope.ok()) scopes_.push_back(std::move(*scope));
    return scope.status();
  }

 private:
  std::vector<PoolScope> scopes_;
};

// Nanoseconds for a scope's begin and end.
Result<double> TimeScope(const Pool& pool, const ScopeOptions& options, double target_ns) {
  using Clock = std::chrono::steady_clock;
  constexpr int kTurn = 64;
  double elapsed = 0;
  int scopes = 0;
  for (const Clock::time_point start = Clock::now(); elapsed < target_ns; scopes += kTurn) {
    for (int turn = 0; turn < kTurn; ++turn) {
      const Result<PoolScope> scope = PoolScope::begin(pool, options);
      if (!scope.ok()) return scope.status();
    }
    elapsed = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  }
  return elapsed / scopes;
}

// Order: by name, routed, routed, by name, so that a drift of the machine favours neither.
Status TimeRoute(const Pool& pool, CUstream stream, const RouteLoop& loop, Samples& samples) {
  const HotAllocator named = HotPool{pool.handle(), stream};
  const HotAllocator routed = HotRoute{stream};
  std::vector<double> times;
  for (const HotAllocator* allocator : {&named, &routed, &routed, &named}) {
    const double pair = COMMPOOL_TRY(TimePairs(*allocator, loop.bytes, loop.round_ns / 4));
    times.push_back(pair);
  }
  samples.by_name.push_back((times[0] + times[3]) / 2);
  samples.pairs.push_back((times[1] + times[2]) / 2);
  samples.added.push_back(samples.pairs.back() - samples.by_name.back());
  return Status();
}

Status Measure(const Route& route, const Pool& pool, const Pool& outer, CUstream stream, const RouteLoop& loop,
               Samples& samples) {
  OpenScopes scopes;
  for (int scope = 1; scope < route.scopes; ++scope) {
    Status status = scopes.Begin(outer, {});
    if (!status.ok()) return status;
  }
  if (route.scopes == 0) return TimeRoute(outer, stream, loop, samples);
  const Result<double> scope_ns = TimeScope(pool, route.options, loop.round_ns / 4);
  if (!scope_ns.ok()) return scope_ns.status();
  samples.scopes.push_back(*scope_ns);
  COMMPOOL_TRY(scopes.Begin(pool, route.options));
  return TimeRoute(pool, stream, loop, samples);
}

}  // namespace

const std::vector<std::string>& RouteNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Route& route : AllRoutes(nullptr)) all.push_back(route.name);
    return all;
  }();
  return names;
}

Result<std::map<std::string, RouteMeasures>> MeasureRoutes(const std::vector<std::string>& routes, const Pool& pool,
                                                           CUstream stream, const RouteLoop& loop) {
  Result<Pool> outer = Pool::default_pool(0);
  if (!outer.ok()) return outer.status();
  std::map<std::string, Samples> samples;
  const std::vector<Route> all = AllRoutes(stream);
  for (int round = -1; round < loop.rounds; ++round) {  // round -1 does not count
    for (const Route& route : all) {
      if (std::find(routes.begin(), routes.end(), route.name) == routes.end()) continue;
      Samples ignored;
      Status status = Measure(route, pool, *outer, stream, loop, round < 0 ? ignored : samples[route.name]);
      if (!status.ok()) return status;
    }
  }
  std::map<std::string, RouteMeasures> measures;
  for (const auto& [name, of] : samples) {
    measures[name] = {Median(of.pairs), Median(of.by_name), SpreadOf(of.added),
                      of.scopes.empty() ? 0 : Median(of.scopes)};
  }
  return measures;
}

}  // namespace commpool::cli
