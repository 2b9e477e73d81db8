// What a test expects of a Status. A failure names the line of the test.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "commpool/status.h"

namespace commpool::internal {

inline void ExpectOk(const Status& status, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const ::testing::ScopedTrace trace(file, line, "must succeed");
  EXPECT_TRUE(status.ok()) << status.message();
}

// Expects this code, and a message that holds the fragment.
inline void ExpectFailure(const Status& status, StatusCode code, const std::string& fragment,
                          const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const ::testing::ScopedTrace trace(file, line, "must fail");
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(fragment), std::string::npos) << status.message();
}

// The same where any code will do.
inline void ExpectMessage(const Status& status, const std::string& fragment, const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
  EXPECT_FALSE(status.ok());
  ExpectFailure(status, status.code(), fragment, file, line);
}

}  // namespace commpool::internal
