/* A pool and a block through the C ABI; prints what the pool holds. */
#include <stdio.h>

#include "commpool/commpool.h"

int main(void) {
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  options.limit_bytes = 64 << 20;
  commpool_pool pool;
  void* data;
  commpool_statistics statistics;
  commpool_statistics_init(&statistics);
  if (commpool_pool_create(&options, &pool) != COMMPOOL_OK ||
      commpool_pool_allocate(pool, 4 << 20, NULL, &data) != COMMPOOL_OK ||
      commpool_pool_statistics(pool, COMMPOOL_PEAKS_STAY, &statistics) != COMMPOOL_OK) {
    fprintf(stderr, "%s\n", commpool_last_error());
    return 1;
  }
  printf("C: %d MiB in use on %s\n", (int)(statistics.allocated_bytes.current >> 20), commpool_driver_description());
  return commpool_free(data) != COMMPOOL_OK || commpool_pool_destroy(pool) != COMMPOOL_OK;
}
