/* What commpool.h has besides its exported functions: the defaults of structs, and the calls for one pool. A part of
 * commpool.h, in its conventions; never included alone.
 *
 * Compiled into the program: so struct_bytes is the program's size, whatever the library's is. Static, in C++ too: two
 * parts of one program, compiled against different versions, must not share them.
 */
#ifndef COMMPOOL_INLINE_H_
#define COMMPOOL_INLINE_H_

#include <string.h>

#include "commpool/commpool.h"

/* ---- Defaults: null does nothing ---- */
static inline void commpool_pool_options_init(commpool_pool_options* options) {
  if (!options) return;
  memset(options, 0, sizeof(*options));
  options->struct_bytes = sizeof(*options);
  options->name = "pool";
  options->numa_node = -1;
  options->deadline_ms = 60000;
  options->alignment_bytes = 512;
  options->release_threshold_bytes = UINT64_MAX;
  options->limit_bytes = UINT64_MAX;
}

static inline void commpool_scope_options_init(commpool_scope_options* options) {
  if (!options) return;
  memset(options, 0, sizeof(*options));
  options->struct_bytes = sizeof(*options);
  options->max_bytes = UINT64_MAX;
}

static inline void commpool_holder_options_init(commpool_holder_options* options) {
  if (!options) return;
  memset(options, 0, sizeof(*options));
  options->struct_bytes = sizeof(*options);
  options->name = "other";
}

static inline void commpool_statistics_init(commpool_statistics* statistics) {
  if (!statistics) return;
  memset(statistics, 0, sizeof(*statistics));
  statistics->struct_bytes = sizeof(*statistics);
}

/* "CUDA driver 13.0, 4 devices, NCCL 2.28.9"; empty before one is open. Valid as texts of commpool_configuration. */
static inline const char* commpool_driver_description(void) {
  commpool_setting driver = {"", "", "", ""};
  commpool_configuration(0, &driver, sizeof(driver), 1, NULL);
  return driver.value;
}

/* ---- One pool ---- */
static inline commpool_status commpool_pool_create(const commpool_pool_options* options, commpool_pool* pool) {
  return commpool_pools_create(options, 1, pool);
}

static inline commpool_status commpool_pool_close(commpool_pool pool) { return commpool_pools_close(&pool, 1); }

static inline commpool_status commpool_pool_reserve(commpool_pool pool, uint64_t bytes) {
  return commpool_pools_reserve(&pool, 1, bytes);
}

static inline commpool_status commpool_pool_reclaim(commpool_pool pool, uint64_t* reclaimed_bytes) {
  return commpool_pools_reclaim(&pool, 1, reclaimed_bytes);
}

static inline commpool_status commpool_pool_trim(commpool_pool pool, uint64_t keep_bytes, uint64_t* released_bytes) {
  return commpool_pools_trim(&pool, 1, keep_bytes, released_bytes);
}

static inline commpool_status commpool_pool_verify(commpool_pool pool) { return commpool_pools_verify(&pool, 1); }

static inline commpool_status commpool_pool_register_with(commpool_pool pool, struct ncclComm* communicator) {
  return commpool_pools_register_with(&pool, &communicator, 1);
}

static inline commpool_status commpool_pool_rehome(commpool_pool pool, struct ncclComm* communicator) {
  return commpool_pools_rehome(&pool, &communicator, 1);
}

static inline commpool_status commpool_pool_deregister(commpool_pool pool, struct ncclComm* communicator) {
  return commpool_pools_deregister(&pool, &communicator, 1);
}

#endif /* COMMPOOL_INLINE_H_ */
