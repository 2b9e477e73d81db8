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

/* "filter 99" */
static const char* Named(const char* what, int number) {
  static char text[64];
  snprintf(text, sizeof(text), "%s %d", what, number);
  return text;
}

#define EXPECT_REFUSED_OPTION(type, option, number)                                \
  do {                                                                             \
    commpool_pool pool = 0;                                                        \
    commpool_pool_options options;                                                 \
    commpool_pool_options_init(&options);                                          \
    options.option = (type)(number);                                               \
    EXPECT_REFUSED(commpool_pool_create(&options, &pool), Named(#option, number)); \
    EXPECT(pool == 0);                                                             \
  } while (0)

#define EXPECT_REFUSED_SCOPE(type, option, number)                                        \
  do {                                                                                    \
    commpool_scope scope = 0;                                                             \
    commpool_scope_options options;                                                       \
    commpool_scope_options_init(&options);                                                \
    options.option = (type)(number);                                                      \
    EXPECT_REFUSED(commpool_scope_begin(pool, &options, &scope), Named(#option, number)); \
    EXPECT(scope == 0);                                                                   \
  } while (0)

/* Each enumeration of the ABI that a program passes, with a number that it does not have. */
static void UnknownEnumerators(int number) {
  const commpool_keep no_keep = (commpool_keep)number;
  const commpool_graphs no_graphs = (commpool_graphs)number;
  commpool_pool_options options;
  commpool_pool pool = 0;
  EXPECT_REFUSED(commpool_initialize((commpool_driver)number, COMMPOOL_MEASURE_NOTHING), Named("driver", number));
  EXPECT_REFUSED_OPTION(commpool_backing, backing, number);
  EXPECT_REFUSED_OPTION(commpool_location, location, number);
  EXPECT_REFUSED_OPTION(commpool_frees, frees, number);
  EXPECT_REFUSED_OPTION(commpool_mode, mode, number);
  EXPECT_REFUSED_OPTION(commpool_moves, moves, number);

  commpool_pool_options_init(&options);
  EXPECT(commpool_pool_create(&options, &pool) == COMMPOOL_OK);
  EXPECT_REFUSED_SCOPE(commpool_filter, filter, number);
  EXPECT_REFUSED_SCOPE(commpool_exhaustion, exhaustion, number);
  EXPECT_REFUSED(commpool_pool_sleep(pool, no_keep, COMMPOOL_GRAPHS_REFUSED), Named("keep", number));
  EXPECT_REFUSED(commpool_pool_sleep(pool, COMMPOOL_KEEP_HOST, no_graphs), Named("graphs", number));
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
  EXPECT(commpool_pool_statistics(pool, COMMPOOL_PEAKS_STAY, &statistics) == COMMPOOL_OK);
  EXPECT(statistics.allocated_blocks.current == 1);
  EXPECT(statistics.requested_bytes.current == 1000);
  EXPECT(commpool_free(pointer) == COMMPOOL_OK);
  EXPECT(commpool_free(pointer) == COMMPOOL_NOT_FOUND);
  EXPECT(commpool_pool_close(pool) == COMMPOOL_OK);
  EXPECT(commpool_pool_destroy(pool) == COMMPOOL_OK);
}

int main(void) {
  UnknownEnumerators(99);
  UnknownEnumerators(-1);
  AllocateInAScope();
  if (failures == 0) printf("the C ABI serves a C program: %s\n", commpool_driver_description());
  return failures == 0 ? 0 : 1;
}
