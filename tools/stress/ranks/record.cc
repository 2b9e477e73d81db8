#include "tools/stress/ranks/record.h"

#include <algorithm>
#include <chrono>
#include <sstream>

namespace commpool::cli::stress_ranks {

namespace {

// A text must fit one line.
std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string Rest(std::istringstream& words) {
  std::string rest;
  std::getline(words >> std::ws, rest);
  return rest;
}

void NoteEnd(std::istringstream& words, RankRecord& record) {
  size_t step = 0;
  int64_t at_ns = 0;
  int code = 0;
  std::string state;
  words >> step >> at_ns >> code >> state;
  CallRecord& call = record.calls[step];
  call.end_ns = at_ns;
  call.code = static_cast<StatusCode>(code);
  call.state = state;
  call.message = Rest(words);
}

void NoteFault(std::istringstream& words, RankRecord& record) {
  int point = 0;
  FaultRecord fault;
  words >> point >> fault.at_ns;
  fault.point = static_cast<Point>(point);
  record.faults.push_back(fault);
}

std::string TimedLine(const std::string& word) { return word + " " + std::to_string(NowNanoseconds()); }

}  // namespace

int64_t NowNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool Note(const std::string& line, RankRecord& record) {
  std::istringstream words(line);
  std::string word;
  words >> word;
  if (word == "begin") {
    size_t step = 0;
    words >> step;
    words >> record.calls[step].begin_ns;
  } else if (word == "end") {
    NoteEnd(words, record);
  } else if (word == "fault") {
    NoteFault(words, record);
  } else if (word == "abort") {
    int64_t at_ns = 0;
    words >> at_ns;
    record.aborted_ns = at_ns;
  } else if (word == "left") {
    record.left.push_back(Rest(words));
  } else if (word == "moved") {
    ++record.moved;
  } else if (word == "waits") {
    record.waits = true;
  } else if (word == "complete") {
    record.complete = true;
  } else {
    return false;
  }
  return true;
}

std::string BeginLine(size_t step) { return TimedLine("begin " + std::to_string(step)); }
std::string EndLine(size_t step, const Status& status, const std::string& state) {
  return TimedLine("end " + std::to_string(step)) + " " + std::to_string(static_cast<int>(status.code())) + " " +
         (state.empty() ? "-" : state) + " " + OneLine(status.message());
}
std::string FaultLine(Point point) { return TimedLine("fault " + std::to_string(static_cast<int>(point))); }
std::string AbortLine() { return TimedLine("abort"); }
std::string LeftLine(const std::string& what) { return "left " + OneLine(what); }
std::string MovedLine() { return "moved"; }
std::string WaitsLine() { return "waits"; }
std::string CompleteLine() { return "complete"; }

}  // namespace commpool::cli::stress_ranks
