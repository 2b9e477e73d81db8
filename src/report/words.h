// Numbers in sentences. Pure functions: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace commpool::internal::report {

// "1 page", "2 pages".
std::string Counted(uint64_t count, const std::string& thing);
std::string Are(uint64_t count);
// Of nanoseconds: "350 ns", "1.5 ms", "12 s".
std::string InWords(int64_t nanoseconds);
// "65,536".
std::string InThousands(uint64_t number);
std::string InHex(uint64_t number);
// "rank 3", "ranks 1, 2"; of very many only the first.
std::string RanksInWords(const std::vector<int64_t>& ranks);

}  // namespace commpool::internal::report
