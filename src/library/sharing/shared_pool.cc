#include <unistd.h>

#include <algorithm>

#include "src/library/sharing/share_server.h"

namespace commpool::internal {

Ticket SharedPool::TicketOf(const std::string& socket, uint64_t block) const {
  Ticket ticket{.secret = secret,
                .process = static_cast<uint64_t>(getpid()),
                .pool = facts.number,
                .device = facts.device,
                .block = block,
                .socket = socket};
  if (block == 0) return ticket;
  ticket.address = blocks.at(block).address;
  ticket.bytes = blocks.at(block).bytes;
  return ticket;
}

void SharedPool::Add(uint64_t number, const SharedBlock& block) {
  blocks.emplace(number, block);
  numbers_[block.address] = number;
}

void SharedPool::NoteFree(uint64_t number) {
  SharedBlock& block = blocks.at(number);
  block.freed = true;
  numbers_.erase(block.address);
  if (block.gate != Gate::kOpen) SetGate(block, number, Gate::kFreed);
}

void SharedPool::NoteEnd() {
  ended = true;
  for (auto& [number, block] : blocks) {
    if (block.gate == Gate::kUpdating) SetGate(block, number, Gate::kPoolEnded);
  }
}

void SharedPool::SetGate(SharedBlock& block, uint64_t number, Gate gate) {
  block.gate = gate;
  for (const std::shared_ptr<Importer>& importer : importers) {
    const auto held = importer->lines.find(number);
    if (held == importer->lines.end()) continue;
    ReadingBoard::Line& line = importer->board.line(held->second);
    line.updated = block.updated;
    line.gate = static_cast<uint32_t>(gate);
    WakeWaiters(line.gate);
  }
}

bool SharedPool::Forget(uint64_t number) {
  if (!blocks.at(number).freed || IsHeld(number)) return false;
  blocks.erase(number);
  return true;
}

uint64_t SharedPool::NumberOf(uint64_t address) const {
  const auto found = numbers_.find(address);
  return found == numbers_.end() ? 0 : found->second;
}

bool SharedPool::IsHeld(uint64_t block) const {
  return std::any_of(importers.begin(), importers.end(),
                     [&](const std::shared_ptr<Importer>& importer) { return importer->lines.contains(block); });
}

Result<size_t> SharedPool::Hold(Importer& importer, uint64_t block) {
  if (const auto held = importer.lines.find(block); held != importer.lines.end()) return held->second;
  const bool reused = !importer.free_lines.empty();
  const size_t place = reused ? importer.free_lines.back() : importer.lines.size();  // else all before it are held
  if (place == ReadingBoard::kLines) {
    return Failure(StatusCode::kExhausted, "one import holds at most ", place,
                   " blocks at a time: release some, or import the pool once more");
  }
  const SharedBlock& shared = blocks.at(block);
  importer.lines.emplace(block, place);
  if (reused) importer.free_lines.pop_back();
  ReadingBoard::Line& line = importer.board.line(place);
  line.readers.store(0);
  line.read.store(0);
  line.updated.store(shared.updated);
  line.gate.store(static_cast<uint32_t>(shared.gate));
  return place;
}

void SharedPool::LetGo(Importer& importer, uint64_t block) {
  const auto found = importer.lines.find(block);
  if (found == importer.lines.end()) return;
  importer.free_lines.push_back(found->second);
  importer.lines.erase(found);
}

}  // namespace commpool::internal
