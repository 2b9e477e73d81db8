#include "src/interpose/audit/report.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string_view>

#include "src/interpose/audit/audit.h"
#include "src/interpose/preload/process_name.h"
#include "src/library/base/bytes.h"

namespace commpool::audit {

namespace {

constexpr size_t kStacks = 10;

template <typename... Values>
std::string Text(const char* format, Values... values) {
  std::array<char, 512> buffer;
  std::snprintf(buffer.data(), buffer.size(), format, values...);
  return buffer.data();
}

// What is not attributed may be negative.
std::string Size(int64_t bytes) { return bytes < 0 ? "-" + Size(-bytes) : internal::FormatBytes(bytes); }
std::string Milliseconds(uint64_t nanoseconds) { return Text("%.2f", static_cast<double>(nanoseconds) / 1e6); }
std::string NameOfDevice(int device) { return device == kNoDevice ? "-" : std::to_string(device); }

std::string LineOf(const std::string& library, const std::string& what, int device, const Row& row) {
  return Text("  %-22.40s %-20s %6s %9llu %9llu %7llu %12s %12s %12s %11s\n", library.c_str(), what.c_str(),
              NameOfDevice(device).c_str(), static_cast<unsigned long long>(row.made),
              static_cast<unsigned long long>(row.ended), static_cast<unsigned long long>(row.failed),
              Size(row.bytes_made).c_str(), Size(row.bytes_now).c_str(), Size(row.bytes_peak).c_str(),
              Milliseconds(row.made_ns + row.ended_ns).c_str());
}

std::string LineOf(const DeviceSum& sum) {
  std::string line = "  device " + std::to_string(sum.device) + ": ";
  if (!sum.used) return line + Size(sum.attributed) + " attributed; the driver does not tell what is in use\n";
  const double share =
      *sum.used > 0 ? 100.0 * static_cast<double>(sum.attributed) / static_cast<double>(*sum.used) : 100;
  line += Size(*sum.used) + " more in use than at the start, " + Size(sum.attributed) +
          Text(" attributed (%.1f %%)", share);
  if (!sum.started_before_context) line += "; the first context's share is not known";
  return line + "\n";
}

Row Held(int64_t bytes) {
  Row row;
  row.bytes_now = bytes;
  return row;
}

// Text as JSON has it.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') {
      quoted += std::string("\\") + letter;
    } else if (letter == '\n') {
      quoted += "\\n";
    } else if (static_cast<unsigned char>(letter) < 0x20 || static_cast<unsigned char>(letter) >= 0x7f) {
      quoted += Text("\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(letter)));
    } else {
      quoted += letter;
    }
  }
  return quoted + "\"";
}

std::string KeysOf(const RowKey& key) {
  return "\"library\":" + Quoted(key.library) + ",\"what\":" + Quoted(NameOf(key.what)) +
         ",\"device\":" + (key.device == kNoDevice ? "null" : std::to_string(key.device));
}

std::string JsonOf(const RowKey& key, const Row& row) {
  return "{" + KeysOf(key) + ",\"device_memory\":" + (IsDeviceMemory(key.what) ? "true" : "false") +
         ",\"made\":" + std::to_string(row.made) + ",\"ended\":" + std::to_string(row.ended) +
         ",\"failed\":" + std::to_string(row.failed) + ",\"bytes_made\":" + std::to_string(row.bytes_made) +
         ",\"bytes_now\":" + std::to_string(row.bytes_now) + ",\"bytes_peak\":" + std::to_string(row.bytes_peak) +
         ",\"made_ns\":" + std::to_string(row.made_ns) + ",\"ended_ns\":" + std::to_string(row.ended_ns) + "}";
}

std::string JsonOf(const DeviceSum& sum) {
  const auto number = [](std::optional<int64_t> value) { return value ? std::to_string(*value) : "null"; };
  const auto rest = sum.used ? std::optional(*sum.used - sum.attributed) : std::nullopt;
  return "{\"device\":" + std::to_string(sum.device) + ",\"used\":" + number(sum.used) +
         ",\"attributed\":" + std::to_string(sum.attributed) + ",\"in_driver_pools\":" + std::to_string(sum.pools) +
         ",\"in_graphs\":" + std::to_string(sum.graphs) + ",\"not_attributed\":" + number(rest) +
         ",\"context_known\":" + (sum.started_before_context ? "true" : "false") + "}";
}

template <typename List, typename Each>
std::string ArrayOf(const List& list, Each each) {
  std::string text;
  for (const auto& one : list) text += (text.empty() ? "" : ",") + each(one);
  return "[" + text + "]";
}

std::string Indented(const std::string& lines) {
  std::string text = "      ";
  for (const char letter : lines) text += letter == '\n' ? std::string("\n      ") : std::string(1, letter);
  return text + "\n";
}

void Append(const std::string& line, const std::string& record) {
  const int file = open(record.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  const int failure = file < 0 ? errno : preload::WriteTo(file, line);
  if (failure != 0) preload::Say("audit", "cannot write " + record + ": " + strerror(failure));
  if (file >= 0) close(file);
}

}  // namespace

ReportData Gather(Audit& audit, const std::string& reason) {
  ReportData data{reason, audit.HowSeen(), {}, audit.ledger.Rows(), audit.ledger.Stacks(kStacks)};
  for (const int device : audit.memory.Devices()) {
    const int64_t pools = audit.memory.PoolBytes(device);
    const int64_t graphs = audit.memory.GraphBytes(device);
    data.devices.push_back({device, audit.ledger.DeviceBytes(device) + pools + graphs, pools, graphs,
                            audit.memory.UsedSinceStart(device), audit.memory.StartedBeforeContext(device)});
  }
  return data;
}

std::string TableOf(const ReportData& data) {
  std::string table =
      "commpool audit: " + preload::NameOfProcess() + ": " + data.reason + "; seen " + data.how_seen + "\n";
  for (const DeviceSum& sum : data.devices) table += LineOf(sum);
  table += Text("  %-22s %-20s %6s %9s %9s %7s %12s %12s %12s %11s\n", "asked by", "for", "device", "made", "ended",
                "failed", "in all", "now", "at peak", "ms");
  for (const auto& [key, row] : data.rows) table += LineOf(key.library, NameOf(key.what), key.device, row);
  for (const DeviceSum& sum : data.devices) {
    if (sum.pools != 0) table += LineOf("the driver", "memory pools", sum.device, Held(sum.pools));
    if (sum.graphs != 0) table += LineOf("the driver", "graphs' memory", sum.device, Held(sum.graphs));
    if (sum.used) table += LineOf("not attributed", "", sum.device, Held(*sum.used - sum.attributed));
  }
  for (const StackSum& sum : data.stacks) {
    table += "    " + Size(static_cast<int64_t>(sum.bytes)) + " now in " + std::to_string(sum.count) + ", " +
             sum.row.library + ", " + NameOf(sum.row.what) + ":\n" + Indented(sum.stack);
  }
  return table;
}

std::string JsonOf(const ReportData& data) {
  const preload::Place place = preload::PlaceOfProcess();
  const auto number = [](int value) { return value < 0 ? std::string("null") : std::to_string(value); };
  return "{\"audit\":1,\"reason\":" + Quoted(data.reason) + ",\"rank\":" + number(place.rank) +
         ",\"ranks\":" + number(place.ranks) + ",\"process\":" + std::to_string(getpid()) +
         ",\"program\":" + Quoted(preload::NameOfProgram()) + ",\"seen\":" + Quoted(data.how_seen) +
         ",\"devices\":" + ArrayOf(data.devices, [](const DeviceSum& sum) { return JsonOf(sum); }) +
         ",\"rows\":" + ArrayOf(data.rows, [](const auto& row) { return JsonOf(row.first, row.second); }) +
         ",\"stacks\":" +
         ArrayOf(data.stacks,
                 [](const StackSum& sum) {
                   return "{" + KeysOf(sum.row) + ",\"count\":" + std::to_string(sum.count) +
                          ",\"bytes_now\":" + std::to_string(sum.bytes) + ",\"stack\":" + Quoted(sum.stack) + "}";
                 }) +
         "}\n";
}

void Write(const ReportData& data, const std::string& record) {
  preload::Write(TableOf(data));
  if (!record.empty()) Append(JsonOf(data), record);
}

}  // namespace commpool::audit
