#include "src/base/user_function.h"

namespace commpool::internal {

namespace {

thread_local constinit const char* running = nullptr;

}  // namespace

UserFunction::UserFunction(const char* name) : outer_(running) { running = name; }

UserFunction::~UserFunction() { running = outer_; }

const char* UserFunction::Running() { return running; }

}  // namespace commpool::internal
