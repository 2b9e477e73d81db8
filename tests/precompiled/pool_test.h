// The headers that tests of whole pools include, compiled once (tools/bazel/precompiled.bzl).
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "tests/pool/pool_fixture.h"
#include "tests/registration/symmetric_fixture.h"
