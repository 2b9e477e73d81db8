// The headers that tests of whole pools include, compiled once (tools/bazel/precompiled.bzl).
#ifndef COMMPOOL_TESTS_PRECOMPILED_POOL_TEST_H_
#define COMMPOOL_TESTS_PRECOMPILED_POOL_TEST_H_

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "tests/pool/pool_fixture.h"
#include "tests/registration/symmetric_fixture.h"

#endif  // COMMPOOL_TESTS_PRECOMPILED_POOL_TEST_H_
