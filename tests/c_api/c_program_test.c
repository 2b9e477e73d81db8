/* A program in C: the ABI compiles without C++, and takes what only C can write into an enumeration. */
#include <stdio.h>
#include <string.h>

#include "commpool/commpool.h"

static int failures = 0;

static void Expect(int holds, const char* fact, int line) {
  if (holds) return;
  fprintf(stderr, "line %d: not so: %s; last error: %s\n", line, fact, commpool_last_error());
  ++failures;
}
#define EXPECT(fact) Expect((fact), #fact, __LINE__)

static void ExpectRefused(commpool_status status, const char* named, int line) {
  Expect(status == COMMPOOL_INVALID_ARGUMENT, "the call is an invalid argument", line);
  Expect(strstr(commpool_last_error(), named) != NULL, named, line);
}
#define EXPECT_REFUSED(call, named) ExpectRefused((call), (named), __LINE__)

static void UnknownEnumerations(void) {
  commpool_pool_options options;
  commpool_scope_options scope_options;
  commpool_pool pool = 0;
  commpool_scope scope = 0;
  EXPECT_REFUSED(commpool_initialize((commpool_driver)99), "driver 99");
  commpool_pool_options_init(&options);
  options.backing = (commpool_backing)99;
  EXPECT_REFUSED(commpool_pool_create(&options, &pool), "backing 99");
  commpool_pool_options_init(&options);
  options.location = (commpool_location)99;
  EXPECT_REFUSED(commpool_pool_create(&options, &pool), "location 99");
  commpool_pool_options_init(&options);
  options.frees = (commpool_frees)99;
  EXPECT_REFUSED(commpool_pool_create(&options, &pool), "frees 99");
  EXPECT(pool == 0);

  commpool_pool_options_init(&options);
  EXPECT(commpool_pool_create(&options, &pool) == COMMPOOL_OK);
  commpool_scope_options_init(&scope_options);
  scope_options.filter = (commpool_filter)99;
  EXPECT_REFUSED(commpool_scope_begin(pool, &scope_options, &scope), "filter 99");
  EXPECT(scope == 0);
  EXPECT(commpool_pool_destroy(pool) == COMMPOOL_OK);
}

static void AllocateInAScope(void) {
  commpool_pool_options options;
  commpool_statistics statistics;
  commpool_pool pool = 0;
  commpool_scope scope = 0;
  void* pointer = NULL;
  commpool_pool_options_init(&options);
  options.name = "from C";
  EXPECT(commpool_pool_create(&options, &pool) == COMMPOOL_OK);
  EXPECT(commpool_scope_begin(pool, NULL, &scope) == COMMPOOL_OK);
  EXPECT(commpool_allocate(0, 1000, NULL, &pointer) == COMMPOOL_OK);
  EXPECT(pointer != NULL);
  EXPECT(commpool_scope_end(scope) == COMMPOOL_OK);
  commpool_statistics_init(&statistics);
  EXPECT(commpool_pool_statistics(pool, &statistics) == COMMPOOL_OK);
  EXPECT(statistics.allocated_blocks.current == 1);
  EXPECT(statistics.requested_bytes.current == 1000);
  EXPECT(commpool_free(pointer) == COMMPOOL_OK);
  EXPECT(commpool_free(pointer) == COMMPOOL_NOT_FOUND);
  EXPECT(commpool_pool_close(pool) == COMMPOOL_OK);
  EXPECT(commpool_pool_destroy(pool) == COMMPOOL_OK);
}

int main(void) {
  UnknownEnumerations();
  AllocateInAScope();
  if (failures == 0) printf("the C ABI serves a C program: %s\n", commpool_driver_description());
  return failures == 0 ? 0 : 1;
}
