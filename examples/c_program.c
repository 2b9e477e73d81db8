/* The C ABI alone: a pool, a scope that routes an allocation into it, its statistics. C11, no CUDA header. */
#include <stdio.h>

#include "commpool/commpool.h"

static int Failed(const char* what) {
  fprintf(stderr, "c_program: %s: %s\n", what, commpool_last_error());
  return 1;
}

int main(void) {
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  options.name = "activations";
  commpool_pool pool;
  if (commpool_pool_create(&options, &pool) != COMMPOOL_OK) return Failed("making a pool");
  printf("driver: %s\n", commpool_driver_description());

  commpool_scope scope;
  if (commpool_scope_begin(pool, NULL, &scope) != COMMPOOL_OK) return Failed("opening a scope");
  void* data = NULL; /* a device address, on the default stream of device 0 */
  if (commpool_allocate(0, 4 << 20, NULL, &data) != COMMPOOL_OK) return Failed("allocating");
  if (commpool_scope_end(scope) != COMMPOOL_OK) return Failed("closing the scope");

  commpool_statistics statistics;
  commpool_statistics_init(&statistics);
  if (commpool_pool_statistics(pool, COMMPOOL_PEAKS_STAY, &statistics) != COMMPOOL_OK)
    return Failed("asking for statistics");
  printf("live blocks %d, %d MiB\n", (int)statistics.allocated_blocks.current,
         (int)(statistics.allocated_bytes.current >> 20));

  if (commpool_free(data) != COMMPOOL_OK) return Failed("freeing");
  if (commpool_pool_destroy(pool) != COMMPOOL_OK) return Failed("ending the pool");
  return 0;
}
