#include "runtime/checkpoint/checkpoint_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>

#include "runtime/checkpoint/checkpoint_files.h"

namespace adaptive_train {
namespace {

constexpr std::string_view kPart = ".part-";
constexpr std::string_view kGone = ".gone";

bool HasDone(const std::string& folder) {
  struct stat info {};
  return ::stat((folder + "/DONE").c_str(), &info) == 0;
}

}  // namespace

std::string CheckpointFolder::PathOf(std::int64_t step) const {
  return path_ + "/" + StepName(step);
}

std::string CheckpointFolder::PartPathOf(std::int64_t step, std::uint64_t attempt) const {
  return fmt::format("{}{}{:016x}", PathOf(step), kPart, attempt);
}

Result<std::vector<std::int64_t>> CheckpointFolder::Complete() const {
  auto names = NamesIn(path_);
  if (!names) return tl::unexpected(names.error());
  std::vector<std::int64_t> steps;
  for (const std::string& name : *names) {
    const std::int64_t step = StepOfName(name);
    if (step >= 0 && HasDone(PathOf(step))) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<NewestCheckpoint> CheckpointFolder::NewestValid(const Judge& judge) const {
  auto names = NamesIn(path_);
  if (!names) return tl::unexpected(names.error());
  std::set<std::pair<std::int64_t, std::string>, std::greater<>> by_step;
  for (const std::string& name : *names) {
    const std::int64_t step = StepOfName(name.substr(0, name.find('.')));
    if (step >= 0) by_step.emplace(step, name);
  }
  NewestCheckpoint newest;
  for (const auto& [step, name] : by_step) {
    if (name.find(kPart) != std::string::npos) {
      newest.unfinished.push_back(path_ + "/" + name + ": was not finished, is not used");
      continue;
    }
    if (name != StepName(step)) continue;  // set aside, or half removed
    if (!HasDone(PathOf(step))) {
      newest.unfinished.push_back(PathOf(step) + ": has no DONE, is not used");
      continue;
    }
    const Result<void> taken = judge(step);
    if (taken) {
      newest.step = step;
      return newest;
    }
    newest.refused.push_back(taken.error().message);
    newest.refused_steps.insert(step);
  }
  return newest;
}

Result<CheckpointReader> CheckpointFolder::Open(std::int64_t step,
                                                const CheckpointOwner& owner) const {
  auto reader = CheckpointReader::Open(PathOf(step));
  if (!reader) return reader;
  auto expected = reader->Expect(owner.identity, owner.parameters);
  if (!expected) return tl::unexpected(expected.error());
  const std::int64_t written = reader->manifest().at.step;
  if (written != step) return FailAt(PathOf(step), fmt::format("is in truth of step {}", written));
  return reader;
}

Result<void> CheckpointFolder::Remove(std::int64_t step) const {
  // Under another name first: a removal that is cut short must not leave half a checkpoint under
  // the name of a whole one.
  const std::string gone = PathOf(step) + std::string(kGone);
  if (IsOwnFolder(gone)) {
    auto removed = RemoveFlatFolder(gone);
    if (!removed) return removed;
  }
  if (std::rename(PathOf(step).c_str(), gone.c_str()) != 0) return FailErrno(PathOf(step));
  auto synced = SyncFolder(path_);
  if (!synced) return synced;
  return RemoveFlatFolder(gone);
}

Result<void> CheckpointFolder::Prune(std::int64_t newest, std::int64_t keep,
                                     const CheckpointOwner& owner,
                                     const std::set<std::int64_t>& spared) const {
  auto steps = Complete();
  if (!steps) return tl::unexpected(steps.error());
  std::int64_t kept = 1;  // the newest
  for (auto step = steps->rbegin(); step != steps->rend(); ++step) {
    if (*step >= newest || spared.count(*step) != 0 || !IsOwnFolder(PathOf(*step))) continue;
    const auto reader = Open(*step, owner);
    if (!reader || !ChangesOf(reader->manifest().at.settings, owner.order).empty()) continue;
    if (++kept <= keep) continue;
    auto removed = Remove(*step);
    if (!removed) return removed;
  }
  return {};
}

Result<void> CheckpointFolder::RemoveLeftovers(std::uint64_t attempt) const {
  auto names = NamesIn(path_);
  if (!names) return tl::unexpected(names.error());
  for (const std::string& name : *names) {
    const std::int64_t step = StepOfName(name.substr(0, name.find('.')));
    const std::string path = path_ + "/" + name;
    if (step < 0 || path == PartPathOf(step, attempt) || !IsOwnFolder(path)) continue;
    const std::string_view ending = std::string_view(name).substr(StepName(step).size());
    if (ending != kGone && ending.substr(0, kPart.size()) != kPart) continue;
    auto removed = RemoveFlatFolder(path);
    if (!removed) return removed;
  }
  return {};
}

}  // namespace adaptive_train
