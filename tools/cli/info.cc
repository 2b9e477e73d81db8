// commpool info: what this machine has; what each backing and registration can do here, and why not; and the
// environment's settings for pools.
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "commpool/configuration.h"
#include "src/library/backing/backing_table.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"
#include "tools/cli/commands.h"
#include "tools/cli/ranks.h"
#include "tools/common/device_link.h"

namespace commpool::cli {

namespace {

using nlohmann::json;

json ToJson(const Status& capability) {
  if (capability.ok()) return {{"available", true}};
  return {{"available", false}, {"reason", capability.message()}};
}

// How a device uses another one's memory. The driver does not tell NVLink from PCIe, but only NVLink has atomics.
const std::map<std::string, internal::Link::Kind>& LinkNames() {
  static const std::map<std::string, internal::Link::Kind> names = {{"none", internal::Link::Kind::kNone},
                                                                    {"access", internal::Link::Kind::kAccess},
                                                                    {"atomics", internal::Link::Kind::kAtomics}};
  return names;
}

json DescribeLinks(const internal::Driver& driver, int device, int count) {
  json links = json::array();
  for (int peer = 0; peer < count; ++peer) {
    if (peer == device) continue;
    const internal::Link link = internal::LinkBetween(driver, device, peer);
    links.push_back({{"to", peer}, {"is", NameOf(LinkNames(), link.kind)}, {"rank", link.rank}});
  }
  return links;
}

json DescribeOne(const internal::DeviceInfo& info) {
  return {{"device", info.device},
          {"name", info.name},
          {"pci_bus_id", info.pci_bus_id},
          {"bytes", info.total_bytes},
          {"compute_capability", std::to_string(info.compute_major) + "." + std::to_string(info.compute_minor)},
          {"host_numa_node", internal::NearestNode(info)},
          {"own_numa_node", info.own_numa_node},
          {"coherent", info.coherent},
          {"reaches", info.reachable_peers},
          {"file_descriptor_handles", info.file_descriptor_handles},
          {"fabric_handles", info.fabric_handles},
          {"gpu_direct_rdma", info.gpu_direct_rdma},
          {"multicast", info.multicast}};
}

// What a backing at a location can do on device 0, which stands for all devices.
json DescribeRow(const internal::Driver& driver, internal::BackingKind kind, internal::Placement::Kind place) {
  const internal::Placement placement{place, 0, -1};
  json row = {{"backing", Name(kind)},
              {"location", place == internal::Placement::Kind::kDevice ? "device" : "host-numa"}};
  Status make = Status();
  Result<std::unique_ptr<internal::Backing>> backing =
      internal::MakeBacking(driver, {.kind = kind, .placement = placement});
  if (backing.ok()) {
    // A real segment says more than attributes: which handle types are refused, whether NCCL falls back.
    Result<std::unique_ptr<internal::Segment>> segment = (*backing)->Make({.bytes = 1});
    if (!segment.ok()) make = Status(StatusCode::kNotSupported, segment.status().message());
    row["granularity"] = (*backing)->granularity();
    row["local"] = ToJson((*backing)->CanRegisterLocal());
    row["window"] = ToJson((*backing)->CanRegisterWindow());
    row["revoke_peers"] = ToJson((*backing)->CanRevoke());
    const internal::MemoryFacts facts = (*backing)->Facts();
    row["memory"] = {{"is", facts.what}, {"because", facts.why}};
  } else {
    make = Status(StatusCode::kNotSupported, backing.status().message());
  }
  row["make"] = ToJson(make);
  return row;
}

Result<json> DescribeSettings() {
  const std::vector<Setting> settings = COMMPOOL_TRY(configuration());
  json described = json::array();
  for (const Setting& setting : settings) {
    described.push_back(
        {{"pool", setting.pool}, {"key", setting.key}, {"value", setting.value}, {"source", setting.source}});
  }
  return described;
}

Result<json> Describe(const internal::Driver& driver) {
  json settings = COMMPOOL_TRY(DescribeSettings());
  const int count = COMMPOOL_TRY(internal::DeviceCount(driver));
  json devices = json::array();
  for (int device = 0; device < count; ++device) {
    const internal::DeviceInfo info = COMMPOOL_TRY(internal::DescribeDevice(driver, device));
    devices.push_back(DescribeOne(info));
    devices.back()["links"] = DescribeLinks(driver, device, count);
  }
  json backings = json::array();
  for (const internal::BackingRow* row : internal::AllBackings()) {
    if (row->maker == internal::Maker::kProgram) continue;  // its abilities depend on the program's functions
    backings.push_back(DescribeRow(driver, row->kind, internal::Placement::Kind::kDevice));
    backings.push_back(DescribeRow(driver, row->kind, internal::Placement::Kind::kHostNuma));
  }
  return json{{"driver", driver.description},
              {"nccl",
               {{"version", internal::FormatNcclVersion(driver.nccl.version)},
                {"file", driver.nccl.path},
                {"missing", driver.nccl.why_missing}}},
              {"devices", devices},
              {"backings", backings},
              {"configuration", settings}};
}

void PrintCapability(const json& row, const char* key, std::string& reasons) {
  const bool there = row.contains(key) && row[key]["available"].get<bool>();
  std::printf(" %8s", there ? "yes" : "no");
  if (!there && row.contains(key))
    reasons += std::string("      ") + key + ": " + row[key]["reason"].get<std::string>() + "\n";
}

void PrintSettings(const json& settings) {
  std::printf("\n%-38s %-18s %s\n", "setting of pools (COMMPOOL_CONF)", "value", "from");
  for (const json& setting : settings) {
    const auto text = [&](const char* key) { return setting[key].get<std::string>(); };
    const std::string name = text("pool").empty() ? text("key") : text("pool") + "." + text("key");
    std::printf("%-38s %-18s %s\n", name.c_str(), text("value").c_str(), text("source").c_str());
  }
}

// A row for each device, a column for each that it may reach.
void PrintLinks(const json& devices) {
  std::printf("\n%-12s", "links");
  for (const json& device : devices) std::printf(" %3d", device["device"].get<int>());
  std::printf("  nodes\n");
  for (const json& device : devices) {
    std::printf("%12d", device["device"].get<int>());
    for (size_t column = 0, link = 0; column < devices.size(); ++column) {
      if (devices[column]["device"] == device["device"]) {
        std::printf("   \\");
        continue;
      }
      const json& to = device["links"][link++];
      const std::string is = to["is"].get<std::string>();
      const std::string mark = is == "none" ? "." : (is == "atomics" ? "=" : "-") + to["rank"].dump();
      std::printf(" %3s", mark.c_str());
    }
    std::printf("  host %d", device["host_numa_node"].get<int>());
    if (device["own_numa_node"].get<int>() >= 0) std::printf(", its own %d", device["own_numa_node"].get<int>());
    std::printf("%s\n", device["coherent"].get<bool>() ? ", uses the host's pages" : "");
  }
  std::printf("= with atomics, as NVLink; - access alone, as PCIe; . none. The number: 0 is the fastest\n");
}

void Print(const json& info) {
  std::printf("%s\n", info["driver"].get<std::string>().c_str());
  if (!info["nccl"]["missing"].get<std::string>().empty()) {
    std::printf("no NCCL: %s\n", info["nccl"]["missing"].get<std::string>().c_str());
  } else {
    std::printf("NCCL from %s\n", info["nccl"]["file"].get<std::string>().c_str());
  }
  std::printf("\n%6s  %-26s %10s  %-4s %-7s %-5s %-9s\n", "device", "name", "memory", "fd", "fabric", "rdma",
              "multicast");
  for (const json& device : info["devices"]) {
    const auto yes = [&](const char* key) { return device[key].get<bool>() ? "yes" : "no"; };
    std::printf("%6d  %-26s %10s  %-4s %-7s %-5s %-9s\n", device["device"].get<int>(),
                device["name"].get<std::string>().c_str(),
                internal::FormatBytes(device["bytes"].get<uint64_t>()).c_str(), yes("file_descriptor_handles"),
                yes("fabric_handles"), yes("gpu_direct_rdma"), yes("multicast"));
  }
  PrintLinks(info["devices"]);
  std::printf("\n%-8s %-10s %8s %8s %8s %8s\n", "backing", "location", "make", "local", "window", "revoke");
  for (const json& row : info["backings"]) {
    std::string reasons;
    std::printf("%-8s %-10s", row["backing"].get<std::string>().c_str(), row["location"].get<std::string>().c_str());
    for (const char* key : {"make", "local", "window", "revoke_peers"}) PrintCapability(row, key, reasons);
    std::printf("\n%s", reasons.c_str());
    if (!row.contains("memory")) continue;
    const auto text = [&](const char* key) { return row["memory"][key].get<std::string>(); };
    std::printf("      memory: %s%s\n", text("is").c_str(),
                text("because").empty() ? "" : (" (" + text("because") + ")").c_str());
  }
  PrintSettings(info["configuration"]);
}

Result<int> Run(const OutputOptions& output) {
  const std::shared_ptr<const internal::Driver> driver = COMMPOOL_TRY(OpenDriver());
  const json info = COMMPOOL_TRY(Describe(*driver));
  return Report(output, driver->description, info, [&] { Print(info); });
}

}  // namespace

void AddInfo(Command app) {
  auto output = std::make_shared<OutputOptions>();
  Command command =
      app.Add("info", "Driver, devices, links, what each backing can do here, or why not, and COMMPOOL_CONF");
  command.Footer("Examples:\n  commpool info\n  COMMPOOL_DRIVER=emulated commpool info --json");
  AddOutputOptions(command, *output);
  command.Do([output] { return Run(*output); });
}

}  // namespace commpool::cli
