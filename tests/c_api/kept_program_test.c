/* A program that was built against the kept header (tests/data/abi), on today's library: it works as it did, and the
 * library writes nothing behind the structs that the program knows. The library comes without today's headers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commpool/commpool.h"

enum { kGuardBytes = 64, kGuard = 0xa5 };

static int failures = 0;

static void Expect(int holds, const char* fact, int line) {
  if (holds) return;
  fprintf(stderr, "line %d: not so: %s; last error: %s\n", line, fact, commpool_last_error());
  ++failures;
}
#define EXPECT(fact) Expect((fact), #fact, __LINE__)

/* `bytes` for a struct, with guard bytes behind it. */
static void* Guarded(size_t bytes) {
  unsigned char* const memory = malloc(bytes + kGuardBytes);
  memset(memory, kGuard, bytes + kGuardBytes);
  return memory;
}

static int GuardHolds(const void* memory, size_t bytes) {
  const unsigned char* const guard = (const unsigned char*)memory + bytes;
  for (size_t place = 0; place < kGuardBytes; ++place) {
    if (guard[place] != kGuard) return 0;
  }
  return 1;
}

static uint64_t CachedBytes(int device, void* context) {
  (void)device;
  (void)context;
  return 0;
}

static void AddAndRemoveAHolder(void) {
  commpool_holder_options* const options = Guarded(sizeof(*options));
  commpool_holder holder = 0;
  commpool_holder_options_init(options);
  EXPECT(GuardHolds(options, sizeof(*options)));
  options->cached_bytes = CachedBytes;
  EXPECT(commpool_add_holder(options, &holder) == COMMPOOL_OK);
  EXPECT(commpool_remove_holder(holder) == COMMPOOL_OK);
  EXPECT(GuardHolds(options, sizeof(*options)));
  free(options);
}

static void AllocateInAScope(commpool_pool pool) {
  commpool_scope_options* const options = Guarded(sizeof(*options));
  commpool_scope scope = 0;
  void* pointer = NULL;
  commpool_scope_options_init(options);
  EXPECT(GuardHolds(options, sizeof(*options)));
  options->max_bytes = 1 << 20;
  EXPECT(commpool_scope_begin(pool, options, &scope) == COMMPOOL_OK);
  EXPECT(GuardHolds(options, sizeof(*options)));
  EXPECT(commpool_allocate(0, 1000, NULL, &pointer) == COMMPOOL_OK);
  EXPECT(commpool_free(pointer) == COMMPOOL_OK);
  EXPECT(commpool_scope_end(scope) == COMMPOOL_OK);
  EXPECT(commpool_allocate_in_scope(0, 1000, NULL, &pointer) == COMMPOOL_NOT_CAUGHT);
  free(options);
}

static void ReadStatistics(commpool_pool pool) {
  commpool_statistics* const statistics = Guarded(sizeof(*statistics));
  void* pointer = NULL;
  EXPECT(commpool_pool_allocate(pool, 1000, NULL, &pointer) == COMMPOOL_OK);
  commpool_statistics_init(statistics);
  EXPECT(commpool_pool_statistics(pool, statistics) == COMMPOOL_OK);
  EXPECT(statistics->requested_bytes.current == 1000);
  EXPECT(statistics->reserved_bytes.current >= 4 << 20);
  EXPECT(GuardHolds(statistics, sizeof(*statistics)));
  EXPECT(commpool_free(pointer) == COMMPOOL_OK);

  /* The guard can tell. */
  ((unsigned char*)statistics)[sizeof(*statistics)] = 0;
  EXPECT(!GuardHolds(statistics, sizeof(*statistics)));
  free(statistics);
}

static void ReadDriverCalls(void) {
  commpool_driver_call* const calls = Guarded(2 * sizeof(*calls));
  size_t count = 0;
  EXPECT(commpool_driver_calls(calls, sizeof(*calls), 2, &count) == COMMPOOL_OK);
  EXPECT(count >= 2);
  EXPECT(calls[0].count >= 1 && calls[1].count >= 1);
  EXPECT(calls[0].microseconds >= calls[1].microseconds);
  EXPECT(GuardHolds(calls, 2 * sizeof(*calls)));
  free(calls);
}

static void MakeSeveralPools(void) {
  commpool_pool_options* const options = Guarded(2 * sizeof(*options));
  commpool_pool pools[2] = {0, 0};
  uint64_t released[2] = {7, 7};
  commpool_pool_options_init(&options[0]);
  commpool_pool_options_init(&options[1]);
  options[1].name = "second";
  EXPECT(commpool_pools_create(options, 2, pools) == COMMPOOL_OK);
  EXPECT(GuardHolds(options, 2 * sizeof(*options)));
  EXPECT(commpool_pools_reserve(pools, 2, 4 << 20) == COMMPOOL_OK);
  EXPECT(commpool_pools_trim(pools, 2, 0, released) == COMMPOOL_OK);
  EXPECT(released[0] >= 4 << 20 && released[1] >= 4 << 20);
  EXPECT(commpool_pools_close(pools, 2) == COMMPOOL_OK);
  EXPECT(commpool_pool_destroy(pools[0]) == COMMPOOL_OK);
  EXPECT(commpool_pool_destroy(pools[1]) == COMMPOOL_OK);
  free(options);
}

static void AskForALostRank(commpool_pool pool) {
  int rank = 7;
  EXPECT(commpool_pool_lost_rank(pool, &rank) == COMMPOOL_OK);
  EXPECT(rank == -1);
}

static void ReadTheConfiguration(commpool_pool pool) {
  commpool_setting* const settings = Guarded(2 * sizeof(*settings));
  size_t count = 0;
  EXPECT(commpool_configuration(pool, settings, sizeof(*settings), 2, &count) == COMMPOOL_OK);
  EXPECT(count >= 2);
  EXPECT(strcmp(settings[0].pool, "kept") == 0);
  EXPECT(GuardHolds(settings, 2 * sizeof(*settings)));
  free(settings);
}

static void SleepAndWake(commpool_pool pool) {
  EXPECT(commpool_pool_sleep(pool, COMMPOOL_KEEP_HOST, COMMPOOL_GRAPHS_NO_COLLECTIVES) == COMMPOOL_OK);
  EXPECT(commpool_pool_reserve(pool, 4 << 20) == COMMPOOL_FAILED_PRECONDITION);
  EXPECT(commpool_pool_wake(pool, COMMPOOL_GRAPHS_REFUSED) == COMMPOOL_OK);
  EXPECT(commpool_sleep("kept", COMMPOOL_KEEP_DISCARD, COMMPOOL_GRAPHS_REFUSED) == COMMPOOL_OK);
  EXPECT(commpool_wake("kept", COMMPOOL_GRAPHS_REFUSED) == COMMPOOL_OK);
}

int main(void) {
  commpool_pool_options* const options = Guarded(sizeof(*options));
  commpool_pool pool = 0;
  EXPECT(commpool_version() / 100 == COMMPOOL_VERSION / 100);
  EXPECT(commpool_measure_driver() == COMMPOOL_OK);
  commpool_pool_options_init(options);
  EXPECT(GuardHolds(options, sizeof(*options)));
  options->name = "kept";
  options->tag = "kept";
  EXPECT(commpool_pool_create(options, &pool) == COMMPOOL_OK);
  EXPECT(GuardHolds(options, sizeof(*options)));
  EXPECT(commpool_pool_reserve(pool, 4 << 20) == COMMPOOL_OK);
  AllocateInAScope(pool);
  ReadStatistics(pool);
  AskForALostRank(pool);
  ReadTheConfiguration(pool);
  SleepAndWake(pool);
  ReadDriverCalls();
  AddAndRemoveAHolder();
  MakeSeveralPools();
  EXPECT(commpool_pool_close(pool) == COMMPOOL_OK);
  EXPECT(commpool_pool_destroy(pool) == COMMPOOL_OK);
  free(options);
  if (failures == 0) printf("a program of version %d runs on version %d\n", COMMPOOL_VERSION, commpool_version());
  return failures == 0 ? 0 : 1;
}
