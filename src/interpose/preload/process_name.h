// What the preloaded libraries share: who this process is, and how they speak to its user. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace commpool::preload {

// A process's place among those that a launcher started (mpirun, torchrun, srun); -1: nobody says so.
struct Place {
  int rank = -1;
  int ranks = -1;
};
Place PlaceOfProcess();

// "rank 1 of 4, process 4711 (python3)".
std::string NameOfProcess();

// The name of the program's file.
std::string NameOfProgram();

// This process has begun to use CUDA, and none that it was forked from had. So a launcher's forked workers count.
void TakeBooks();
// Whether the books are those of a process that this one was forked from: that used CUDA before the fork, or this one
// has not used it.
bool IsForked();

// Writes all of the text, in one piece where there is room for it. Returns why not, an errno; 0 for success. The
// signals that a write can raise stay away: they would end the program.
int WriteTo(int file, std::string_view text);
// Writes to stderr in one piece, because ranks share it.
void Write(const std::string& text);
// One line, "commpool audit: rank 1 of 4, process 4711 (python3): text".
void Say(const std::string& command, const std::string& text);

}  // namespace commpool::preload
