#include "kvstore/recovery.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "kvstore/segment_file.h"
#include "kvstore/slot_pool.h"

namespace artery::kvstore {
namespace {

constexpr std::size_t kThreads = 4;

struct Names {
  std::vector<SegmentId> segments;
  std::vector<std::uint64_t> journals;
};

Names sort_names(const std::vector<std::string>& names, Recovered& out) {
  static constexpr std::string_view kOurs[] = {
      "super", "secret", "spaces.json", "keys.json", "lock"
  };
  Names sorted;
  for (const std::string& name : names) {
    if (const auto segment = segment_of(name)) {
      sorted.segments.push_back(*segment);
      out.next_segment = std::max(out.next_segment, *segment + 1);
    } else if (const auto journal = journal_of(name)) {
      sorted.journals.push_back(*journal);
    } else if (std::ranges::find(kOurs, name) == std::end(kOurs)) {
      out.unknown_files.push_back(name);
    }
  }
  std::ranges::sort(sorted.segments);
  std::ranges::sort(sorted.journals, std::greater<>());
  return sorted;
}

Result<> read_super(const std::string& folder, FileSystem& files, Recovered& out) {
  const std::string path = folder + "/super";
  const auto text = files.read(path, static_cast<std::size_t>(2 * kBlock));
  if (!text && text.error().code == Code::kNotFound) return {};
  if (!text && text.error().code != Code::kTooLarge) return tl::unexpected<Error>(text.error());
  const auto super = text ? pick_super(std::as_bytes(std::span(*text)), path)
                          : fail(Code::kBadFile, "{}", text.error().message);
  if (!super && super.error().code == Code::kUnsupported) {
    return fail(Code::kBadFile, "{}; use another folder", super.error().message);
  }
  if (!super) {
    out.troubles.push_back(super.error().message + "; made anew from journal and segments");
    return {};
  }
  out.super = *super;
  out.has_super = true;
  out.next_segment = std::max(out.next_segment, super->next_segment);
  return {};
}

Result<> read_journal(
    const std::string& folder, FileSystem& files, std::uint64_t number, Recovered& out
) {
  const std::string path = folder + "/" + journal_name(number);
  const auto file = TRY(files.open_blocks(path, OpenMode::kRead));
  out.replay = TRY(replay_journal(*file, number, path));
  out.super.journal = number;
  out.has_journal = true;
  return {};
}

// The one that the super block names; where that cannot be read, the latest that can.
Result<> read_journals(
    const std::string& folder, FileSystem& files, std::vector<std::uint64_t> numbers, Recovered& out
) {
  const std::uint64_t named = out.super.journal;
  const auto at = std::ranges::find(numbers, named);
  if (out.has_super && at != numbers.end()) std::rotate(numbers.begin(), at, at + 1);
  std::uint64_t highest = named;
  for (const std::uint64_t number : numbers) {
    highest = std::max(highest, number);
    if (out.has_journal) {
      out.leftovers.push_back(journal_name(number));
      continue;
    }
    const Result<> read = read_journal(folder, files, number, out);
    if (read) continue;
    out.troubles.push_back(read.error().message);
    if (read.error().code == Code::kUnsupported) {
      ++out.versions;  // not understood: left alone; footers and headers say enough
      continue;
    }
    out.leftovers.push_back(journal_name(number));
  }
  if (out.has_super && !out.has_journal && numbers.empty()) {
    out.troubles.push_back(
        folder + ": the journal is not there; goes on with the segments' footers"
    );
  }
  // The number of the next one, which is made anew then.
  if (!out.has_journal) out.super.journal = highest;
  return {};
}

std::vector<SegmentScan> scan_all(
    const std::string& folder,
    FileSystem& files,
    const std::vector<SegmentId>& ids,
    const Replay& replay
) {
  std::vector<SegmentScan> out(ids.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < ids.size(); i = next++) {
      const auto known = replay.segments.find(ids[i]);
      out[i] = scan_segment(
          files,
          folder + "/" + segment_name(ids[i]),
          ids[i],
          known == replay.segments.end() ? nullptr : &known->second
      );
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < std::min(kThreads, ids.size()); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return out;
}

void take_segment(SegmentScan scan, Recovered& out) {
  using State = SegmentScan::State;
  if (!scan.trouble.empty()) out.troubles.push_back(scan.trouble);
  switch (scan.state) {
    case State::kVersion:
      ++out.versions;
      return;
    case State::kLost:
      ++out.lost;
      return;
    case State::kEmpty:
      out.leftovers.push_back(segment_name(scan.id));
      return;
    case State::kDamaged:
      ++out.cuts;
      break;
    case State::kSealed:
    case State::kOpen:
      out.cuts += scan.was_cut ? 1 : 0;
      break;
  }
  out.super.epoch = std::max(out.super.epoch, scan.epoch);
  out.segments.push_back(std::move(scan));
}

}  // namespace

Result<Recovered> recover(const std::string& folder, FileSystem& files) {
  Recovered out;
  const Names names = sort_names(TRY(files.list(folder)), out);
  TRY(read_super(folder, files, out));
  out.is_new = !out.has_super && names.segments.empty() && names.journals.empty();
  TRY(read_journals(folder, files, names.journals, out));
  out.next_segment = std::max(out.next_segment, out.replay.next_segment);
  std::vector<SegmentId> ids;
  for (const SegmentId id : names.segments) {
    if (out.replay.dropped.contains(id) && !out.replay.segments.contains(id)) {
      out.leftovers.push_back(segment_name(id));
    } else {
      ids.push_back(id);
    }
  }
  for (const auto& [id, known] : out.replay.segments) {
    const bool is_there = std::ranges::binary_search(names.segments, id);
    if (is_there || (known.puts.empty() && !known.is_sealed)) continue;
    ++out.lost;
    out.troubles.push_back(fmt::format("{}/{}: it is gone", folder, segment_name(id)));
  }
  for (SegmentScan& scan : scan_all(folder, files, ids, out.replay)) {
    take_segment(std::move(scan), out);
  }
  return out;
}

}  // namespace artery::kvstore
