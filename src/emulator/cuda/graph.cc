#include "src/emulator/cuda/graph.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "src/emulator/cuda/machine.h"

namespace commpool::internal::emulator {

namespace {

std::shared_ptr<Operation> Boundary(const char* name) {
  auto operation = std::make_shared<Operation>();
  operation->name = name;
  return operation;
}

// Makes the operation of a node for one replay.
std::shared_ptr<Operation> Replayed(Machine& machine, const CUgraphNode_st& node) {
  auto operation = std::make_shared<Operation>(node.operation);
  operation->origin = Operation::Origin::kReplayed;
  for (const auto* const ranges : {&operation->reads, &operation->writes}) {
    for (const commpoolEmulatorRange& range : *ranges) {
      if (machine.races.blocks().IsAsleep(range.address)) {
        machine.logbook.Report("a graph is replayed over memory that sleeps", operation->name);
      }
    }
  }
  if (!operation->repeat) return operation;
  const std::optional<std::vector<uint64_t>>& captured = operation->captured_mappings;
  if (captured && machine.addresses.NumbersUnder(operation->reads, operation->writes) != *captured) {
    machine.logbook.Report("a graph replays a collective over memory that was mapped anew",
                           operation->name + ": NCCL may have registered what was there when it was captured");
  }
  operation->start = operation->repeat();
  operation->repeat = nullptr;
  if (!operation->start) machine.logbook.Report("a graph repeats what is gone", operation->name);
  return operation;
}

}  // namespace

const char* UserAmong(const Nodes& nodes, CUdeviceptr address, uint64_t bytes) {
  for (const auto& node : nodes) {
    if (node->operation.Touches(address, bytes)) return node->operation.name.c_str();
  }
  return nullptr;
}

CUgraph Graphs::Add(std::unique_ptr<CUgraph_st> graph) {
  const CUgraph handle = graph.get();
  graphs_.emplace(handle, std::move(graph));
  return handle;
}

CUgraphExec Graphs::Instantiate(const CUgraph_st& graph) {
  auto executable = std::make_unique<CUgraphExec_st>();
  executable->nodes = graph.nodes;
  executable->objects = std::make_shared<ObjectReferences>(graph.objects);
  const CUgraphExec handle = executable.get();
  executables_.emplace(handle, std::move(executable));
  return handle;
}

void Graphs::Launch(Machine& machine, CUgraphExec_st& executable, CUstream_st* stream) {
  Scheduler& scheduler = machine.scheduler;
  const std::shared_ptr<Operation> begin = Boundary("graph begin");
  if (executable.last != nullptr) begin->after.push_back(executable.last);
  scheduler.Submit(stream, begin);
  const std::shared_ptr<Operation> end = Boundary("graph end");
  std::map<const CUgraphNode_st*, std::shared_ptr<Operation>> replayed;
  // The branches that still end with the node. A node goes on with that of a node that it depends on, or else begins a
  // stream of its own, which goes when it has run: so only the declared order holds, with few streams.
  std::map<const CUgraphNode_st*, CUstream_st*> tails;
  std::vector<CUstream_st*> branches;
  const auto branch_of = [&](const CUgraphNode_st& node) {
    for (const CUgraphNode_st* dependency : node.dependencies) {
      const auto tail = tails.find(dependency);
      if (tail == tails.end() || tail->second->device != node.device) continue;
      CUstream_st* const branch = tail->second;
      tails.erase(tail);
      return branch;
    }
    branches.push_back(scheduler.CreateStream(node.device, CU_STREAM_NON_BLOCKING, 0));
    return branches.back();
  };
  for (const auto& node : executable.nodes) {
    std::shared_ptr<Operation> operation = Replayed(machine, *node);
    operation->after.push_back(begin);
    for (const CUgraphNode_st* dependency : node->dependencies) operation->after.push_back(replayed.at(dependency));
    replayed.emplace(node.get(), operation);
    end->after.push_back(operation);
    CUstream_st* const branch = branch_of(*node);
    scheduler.Submit(branch, std::move(operation));
    tails.emplace(node.get(), branch);
  }
  for (CUstream_st* const branch : branches) scheduler.DestroyStream(branch);
  end->objects = executable.objects;
  scheduler.Submit(stream, end);
  executable.last = end;
}

bool Graphs::HasNode(CUgraphNode node) const {
  const auto has = [&](const auto& entry) {
    const Nodes& nodes = entry.second->nodes;
    return std::any_of(nodes.begin(), nodes.end(), [&](const auto& one) { return one.get() == node; });
  };
  return std::any_of(graphs_.begin(), graphs_.end(), has);
}

const char* Graphs::UserOf(CUdeviceptr address, uint64_t bytes) const {
  for (const auto& [handle, graph] : graphs_) {
    if (const char* name = UserAmong(graph->nodes, address, bytes)) return name;
  }
  for (const auto& [handle, executable] : executables_) {
    if (const char* name = UserAmong(executable->nodes, address, bytes)) return name;
  }
  return nullptr;
}

std::vector<std::string> Graphs::Describe() const {
  std::vector<std::string> lines;
  for (const auto& [handle, graph] : graphs_) {
    lines.push_back("graph of " + std::to_string(graph->nodes.size()) + " nodes");
  }
  for (const auto& [handle, executable] : executables_) {
    lines.push_back("executable graph of " + std::to_string(executable->nodes.size()) + " nodes");
  }
  return lines;
}

}  // namespace commpool::internal::emulator
