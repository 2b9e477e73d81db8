// commpool report: makes one page of what the recordings of a program's ranks hold, or exports one rank's.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/report/allocation_trace.h"
#include "src/report/findings.h"
#include "src/report/model_json.h"
#include "src/report/page/page.h"
#include "src/report/report_builder.h"
#include "src/report/snapshot.h"
#include "tools/cli/commands.h"

namespace commpool::cli {

namespace {

using internal::report::RecordingReader;
using internal::report::Recordings;

enum class As { kHtml, kSnapshot, kTrace };

const std::map<std::string, As> kAs = {{"html", As::kHtml}, {"snapshot", As::kSnapshot}, {"trace", As::kTrace}};

struct ReportArguments {
  std::string place;
  std::string output;
  As as = As::kHtml;
  std::optional<uint64_t> rank;
};

std::string OutputOf(const ReportArguments& arguments) {
  if (!arguments.output.empty()) return arguments.output;
  switch (arguments.as) {
    case As::kSnapshot:
      return "snapshot.pickle";
    case As::kTrace:
      return "report.trace";
    case As::kHtml:
      break;
  }
  return "report.html";
}

void WriteHtml(std::ostream& out, const Recordings& recordings) {
  const internal::report::ReportModel model = internal::report::BuildReport(recordings);
  internal::WritePage(out, model.title, [&](std::ostream& page) { internal::report::WriteModel(page, model); });
  for (const internal::report::FindingModel& finding : model.findings) std::printf("%s\n", finding.text.c_str());
  for (const std::string& budget : internal::report::DescribeBudgets(model)) std::printf("%s\n", budget.c_str());
  const auto difference = internal::report::DescribeDifference(model);
  if (difference) std::printf("%s\n", difference->c_str());
  if (!difference && model.findings.empty()) {
    std::printf("%s: nothing found\n", Counted(model.ranks.size(), "rank").c_str());
  }
  for (const std::string& note : model.notes) std::printf("%s\n", note.c_str());
  for (const internal::report::RankModel& rank : model.ranks) {
    for (const std::string& note : rank.notes) {
      std::printf("rank %lld: %s\n", static_cast<long long>(rank.rank), note.c_str());
    }
  }
}

Result<const RecordingReader*> RecordingOf(const Recordings& recordings, std::optional<uint64_t> rank) {
  if (!rank) return &recordings.readers.front();
  for (size_t place = 0; place < recordings.ranks.size(); ++place) {
    if (recordings.ranks[place] == static_cast<int64_t>(*rank)) return &recordings.readers[place];
  }
  return Status(StatusCode::kNotFound, "--rank: rank " + std::to_string(*rank) + " left no recording here");
}

Status WriteTrace(std::ostream& out, const RecordingReader& recording) {
  const internal::report::TraceCounts counts = COMMPOOL_TRY(internal::report::WriteAllocationTrace(out, recording));
  std::printf("%s, %s\n", Counted(counts.allocations, "allocation").c_str(), Counted(counts.frees, "free").c_str());
  if (counts.small == 0) return Status();
  std::printf("without %s that threads' caches served: a recording only counts them\n",
              Counted(counts.small, "small allocation").c_str());
  return Status();
}

Status Write(std::ostream& out, const ReportArguments& arguments, const Recordings& recordings) {
  if (arguments.as == As::kHtml) {
    WriteHtml(out, recordings);
    return Status();
  }
  const RecordingReader& recording = *COMMPOOL_TRY(RecordingOf(recordings, arguments.rank));
  for (const std::string& note : recording.notes()) std::printf("%s\n", note.c_str());
  if (arguments.as == As::kTrace) return WriteTrace(out, recording);
  internal::report::WriteSnapshot(out, recording);
  return Status();
}

Result<int> Run(const ReportArguments& arguments) {
  if (arguments.rank && arguments.as == As::kHtml) {
    return Status(StatusCode::kInvalidArgument, "--rank chooses a snapshot or a trace; a page has all ranks");
  }
  const Recordings recordings = COMMPOOL_TRY(internal::report::OpenRecordings(arguments.place));
  const std::string file = OutputOf(arguments);
  const auto failed = [&](const std::string& name) {
    return Status(StatusCode::kInvalidArgument, "cannot write " + name + ": " + std::strerror(errno));
  };
  // An older file of that name stays as it is until the new one is whole. A pipe or a device is written to directly.
  const bool replaces = !std::filesystem::exists(file) || std::filesystem::is_regular_file(file);
  const std::string written_to = replaces ? file + ".unfinished" : file;
  std::ofstream out(written_to, std::ios::binary | std::ios::trunc);
  Status status = out ? Write(out, arguments, recordings) : Status();
  const auto bytes = static_cast<int64_t>(out.tellp());
  out.close();
  if (status.ok() && !out) status = failed(written_to);
  if (status.ok() && replaces && std::rename(written_to.c_str(), file.c_str()) != 0) status = failed(file);
  if (!status.ok()) {
    if (replaces) std::remove(written_to.c_str());
    return status;
  }
  std::printf("%s: %s\n", file.c_str(), internal::FormatBytes(static_cast<uint64_t>(bytes)).c_str());
  return kSuccess;
}

}  // namespace

void AddReport(Command app) {
  const auto arguments = std::make_shared<ReportArguments>();
  Command command = app.Add("report", "Make one page of what a program's ranks recorded");
  command.AddOption("DIR", arguments->place, "The folder of the recordings, or one of them").Required();
  command.AddOption("--output", arguments->output, "Default: report.html, snapshot.pickle or report.trace")
      .Called("FILE");
  AddChoice(command, "--as", arguments->as, kAs,
            "A page for a browser; a snapshot that PyTorch's memory_viz opens; a trace that commpool replay runs");
  command.AddOption("--rank", arguments->rank, "Whose snapshot or trace; default: the lowest");
  command.Footer(
      "Examples:\n"
      "  commpool report recordings\n"
      "  commpool report recordings --as trace --rank 3 --output mine.trace");
  command.Do([arguments] { return Run(*arguments); });
}

}  // namespace commpool::cli
