// Begins an epoch of a symmetric pool, or moves the pool to another home. From then on its ranks are those of one home,
// and its sequence of calls is new. Ranks that create the pool and ranks that rehome it meet in one call. The rehoming
// ranks keep their memory; ranks with fewer segments make the missing ones.
#include <random>
#include <utility>

#include "src/library/base/try.h"
#include "src/library/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

namespace {

// Never 0, which stands for no home. Other homes of the job have other numbers, without a word to their ranks.
uint64_t RandomNumber() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random() | 1;
}

// Rank 0's proposal is the pool's home number.
Findings FindHomeNumber(const std::vector<DomainReport>& reports) {
  return {.home_id = reports.front().number.value_or(0)};
}

}  // namespace

// Both locks are held to the end, so that nobody finds a segment under its old number. NCCL knows none of them here.
Status SymmetricMode::Renumber() {
  MutexLock growth(basis_.growth());
  MutexLock lock(blocks_.mutex());
  // In the order of their old numbers, so the new ones follow the same order on every rank.
  // Check all segments before the first one changes, so that a failure changes nothing.
  const std::vector<SegmentToRegister> kept = segments_.book.List();
  for (const SegmentToRegister& segment : kept) {
    if (!engine().IsIdle(segment.index)) return FailedPrecondition("another thread allocated during a collective call");
  }
  std::vector<std::unique_ptr<Segment>> segments;  // from here on nothing fails
  for (const SegmentToRegister& segment : kept) {
    engine().RemoveSegment(segment.index);
    segments.push_back(segments_.book.Take(segment.index));
  }
  // The sequence and the numbers of segments begin again.
  engine().BeginEpoch();
  for (std::unique_ptr<Segment>& segment : segments) {
    const engine::SegmentIndex index = engine().AddSegment({segment->address(), segment->bytes()});
    segments_.book.Put(index, std::move(segment));
  }
  segments_.registrations.registrars().Renumber(segments_.book.List());
  return Status();
}

// Memory alone: NCCL is called once every rank has said that it has all segments.
Status SymmetricMode::MakeMissing(const std::vector<uint64_t>& all, NewSegments& made) {
  COMMPOOL_TRY(Renumber());
  const ContextGuard current = basis_.MakeCurrent();
  MutexLock growth(basis_.growth());
  // This rank's own segments are the first ones of `all`: the agreement has compared their sizes.
  for (size_t place = segments_.book.count(); place < all.size(); ++place) {
    Room room = COMMPOOL_TRY(segments_.room.Take(all[place]));
    NewSegment segment = COMMPOOL_TRY(segments_.maker.Make(all[place], std::move(room)));
    made.push_back(std::move(segment));
  }
  return Status();
}

// Two steps that all ranks agree on. Memory that a failed second step leaves behind is set aside where another rank may
// still use it, else it goes back.
Status SymmetricMode::MakeAndRegister(const std::vector<uint64_t>& all, NewSegments& made) {
  const std::string name = "making the pool's " + std::to_string(all.size()) + " segments";
  COMMPOOL_TRY(collective_.Run({.name = name.c_str(), .act = [&] { return MakeMissing(all, made); }}));
  const auto add_home = [&] {
    basis_.collective.AssertHeld();
    std::vector<SegmentToRegister> segments = segments_.book.List();
    for (const NewSegment& one : made) {
      segments.push_back({static_cast<uint32_t>(segments.size()), one->address(), one->bytes()});
    }
    return AddHome(segments);
  };
  // Registrars keep the segments that the pool had before this call.
  const auto leave_home = [&]() COMMPOOL_REQUIRES(basis_.collective) -> Status {
    RegistrationSet& registrations = segments_.registrations;
    Status first = registrations.Remove(home_.handle);
    const uint64_t first_made = segments_.book.count();
    for (uint64_t place = 0; place < made.size(); ++place) {
      KeepFirst(first, registrations.DeregisterSegment(static_cast<uint32_t>(first_made + place)));
    }
    return first;
  };
  const auto undo = [&](const Status& mine) {
    basis_.collective.AssertHeld();
    // A rank whose registration failed has none to remove.
    const Status undone = mine.ok() ? leave_home() : Status();
    const Status all_undone = collective_.AgreeOnStep(undone, "undoing the registration");
    // If one rank could not undo, or is lost, a peer or NCCL may still hold this memory.
    if (all_undone.ok()) return;
    // NCCL may still hold it on this rank, or only on another one: ReleaseSetAside treats the two in different ways.
    const bool pinned = !mine.ok() || !undone.ok();
    segments_.book.SetAside(std::move(made), pinned ? SegmentBook::Aside::kPinned : SegmentBook::Aside::kUnpinned);
  };
  return collective_.Run({.name = "registering with home", .act = add_home, .undo = undo});
}

// Open calls it for a pool that is made, Rehome for one that moves. The round is the same for both, so they may meet.
Status SymmetricMode::BeginEpoch(CollectiveCall call, const Status& readiness) {
  const Agreed agreed = COMMPOOL_TRY(collective_.Begin(
      {.call = call, .readiness = readiness, .report = {.number = RandomNumber()}, .judge = FindHomeNumber}));
  // Host memory may be shared less far on some rank, and all ranks must make theirs alike.
  // Before the first segment of this epoch is made here.
  segments_.backing->SettleOn(static_cast<Reach>(agreed.reach));
  NewSegments made;
  if (agreed.segments.empty()) {  // no rank has memory, so no rank calls NCCL and none can fail
    COMMPOOL_TRY(Renumber());
    COMMPOOL_TRY(AddHome({}));
  } else {
    COMMPOOL_TRY(MakeAndRegister(agreed.segments, made));
  }
  {
    MutexLock growth(basis_.growth());
    for (NewSegment& segment : made) segments_.maker.Adopt(std::move(segment));
  }
  {
    MutexLock lock(blocks_.mutex());
    engine().NoteCollective(engine::SequenceCall::kRegister, 0);  // the first call of every epoch
  }
  // What follows makes the new home known to other threads.
  collective_.StartPublishing(home_.rank);
  basis_.channel_number.store(collective_.channel().number(), std::memory_order_release);
  basis_.home_id.store(agreed.findings.home_id, std::memory_order_release);
  // For a report the pool of the other home has ended, with all that it had.
  if (basis_.handle != 0 && basis_.record.on()) {
    basis_.RecordMade();
    RecordBlocks(basis_, blocks_);
    segments_.registrations.RecordPresent();
  }
  losses_.Follow(collective_.channel().lost_ranks());
  // Last: other threads that find a home may call for the pool at once.
  home_handle_.store(home_.handle, std::memory_order_release);
  return Status();
}

// What can refuse, and the wait. The pool may still stay with its home.
Status SymmetricMode::GetReadyToLeave() {
  COMMPOOL_TRY(basis_.CheckOpen());
  COMMPOOL_TRY(CheckNoLiveBlocks("rehome()"));
  COMMPOOL_TRY(segments_.CheckMayUnmap());
  if (!segments_.registrations.empty()) {
    return FailedPrecondition(
        "it is still registered with communicators: abandon() or deregister() every one before rehome()");
  }
  COMMPOOL_TRY(AwaitOwnFrees(basis_.own_deadline_ms()));
  // If the pool left its home together with the other ranks, that home still exists and may still know the memory.
  return home() == nullptr ? segments_.maker.ReleaseSetAside(Pinned::kGo) : Status();
}

// This pool cannot use the communicator, but its ranks wait for it: connect once, and tell them.
Status SymmetricMode::RefuseHome(Communicator& other, const Status& why) const {
  // The communicator's device, which is not the pool's here.
  const Result<PrimaryContext> context = PrimaryContext::Retain(basis_.driver, other.device);
  if (!context.ok()) return why;
  const Result<std::unique_ptr<AgreementChannel>> channel =
      Collective::OpenChannel(*context, basis_.runtime, other, basis_.configuration);
  return channel.ok() ? Collective::Refuse(**channel, CollectiveCall::kRehome, why) : why;
}

// Up to MoveTo a failure leaves the pool with its old home.
Status SymmetricMode::Rehome(ncclComm_t communicator) {
  const nvtx::Range range = basis_.Shown("rehome");
  MutexLock collective(basis_.collective);
  Communicator home =
      COMMPOOL_TRY(basis_.Named(DescribeCommunicator(basis_.driver, communicator, basis_.own_deadline_ms()), "rehome"));
  if (home.device != basis_.device->device()) {
    return basis_.Named(RefuseHome(
        home, InvalidArgument("the communicator is of device ", home.device, ", and ", basis_.title, " of another")));
  }
  // A rank that cannot leave its home connects all the same: the ranks of the new home must hear its reason.
  Status readiness = GetReadyToLeave();
  std::unique_ptr<AgreementChannel> channel = COMMPOOL_TRY(basis_.Named(
      Collective::OpenChannel(basis_.device->context(), basis_.runtime, home, basis_.configuration), "rehome"));
  // From here on the pool has no home until all ranks have agreed. If they do not, it can be rehomed again or closed.
  home_handle_.store(nullptr, std::memory_order_release);
  basis_.home_id.store(0, std::memory_order_release);
  basis_.channel_number.store(0, std::memory_order_release);
  collective_.MoveTo(std::move(channel));
  // BeginEpoch reads it for the publisher and the registrations.
  home_ = home;
  domains_ = DomainTable(home.ranks);  // the numbers of the old home mean nothing to these ranks
  // Cuts all ties to the old home, which cannot be undone: frees take effect that no other rank will confirm, and the
  // addresses of other ranks go.
  if (readiness.ok()) {
    ApplyOwnFrees();
    maps_peers_ = false;
    readiness = ForgetPeers(segments_.book.Indexes());
  }
  return BeginEpoch(CollectiveCall::kRehome, readiness);
}

}  // namespace commpool::internal
