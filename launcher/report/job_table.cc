// Formats the rows of `adaptive-train jobs`: fields, widths, sacct's table and parsable forms.
#include "launcher/report/job_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "core/edit_distance.h"
#include "launcher/report/job_time.h"

namespace adaptive_train {

/// The value that a column shows.
struct JobField {
  std::string_view name;
  std::size_t width;
  bool left;
  std::string (*show)(const ListedJob& job, double now);
};

namespace {

constexpr std::string_view kDefaultFormat =
    "JobID,JobName,State,ExitCode,Elapsed,Nodes,Steps,ValLoss,Tokens/s";
constexpr std::size_t kMaxWidth = 1000;

std::string Number(std::int64_t value) { return std::to_string(value); }

std::string Decimal(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "";
}

std::string Moment(const std::optional<double>& time) {
  return time ? ShownTime(*time) : "Unknown";
}

/// A number from the summary; blank if there is none.
template <std::int64_t SummaryRecord::*member>
std::string Sum(const ListedJob& job, double) {
  return job.row.summary ? Number((*job.row.summary).*member) : "";
}

template <std::optional<double> SummaryRecord::*member, int digits>
std::string Mean(const ListedJob& job, double) {
  return job.row.summary ? Decimal((*job.row.summary).*member, digits) : "";
}

using Job = const ListedJob&;
const std::vector<JobField>& Fields() {
  static const std::vector<JobField> kFields = {
      {"Account", 10, false, [](Job job, double) { return job.row.job.account; }},
      {"ActivationBytes", 15, false, Sum<&SummaryRecord::activation_bytes>},
      {"Cluster", 10, false, [](Job job, double) { return job.row.job.cluster; }},
      {"Elapsed", 10, false,
       [](Job job, double now) {
         const auto elapsed = ElapsedSeconds(job, now);
         return elapsed ? ShownSpan(*elapsed) : std::string("Unknown");
       }},
      {"End", 19, false, [](Job job, double) { return Moment(job.row.end_time); }},
      {"ExitCode", 8, false,
       [](Job job, double) { return fmt::format("{}:0", job.row.exit_code.value_or(0)); }},
      {"Failures", 8, false, [](Job job, double) { return Number(job.row.failures); }},
      {"GradBytes", 15, false, Sum<&SummaryRecord::grad_bytes>},
      {"JobID", 8, true, [](Job job, double) { return ShownJobId(job.row); }},
      {"JobName", 10, false, [](Job job, double) { return job.row.job.name; }},
      {"Launches", 8, false, [](Job job, double) { return Number(job.row.launches); }},
      {"Loss", 8, false, Mean<&SummaryRecord::final_loss, 4>},
      {"MFU", 6, false, Mean<&SummaryRecord::mfu, 3>},
      {"MicroBatches", 12, false,
       [](Job job, double) {
         const auto count = job.row.summary ? job.row.summary->micro_batches : std::nullopt;
         return count ? Number(*count) : "";
       }},
      {"NodeList", 20, false,
       [](Job job, double) { return fmt::format("{}", fmt::join(job.row.nodes, ",")); }},
      {"Nodes", 5, false, [](Job job, double) { return std::to_string(job.row.nodes.size()); }},
      {"Options", 20, false, [](Job job, double) { return job.row.job.options; }},
      {"ParamBytes", 15, false, Sum<&SummaryRecord::param_bytes>},
      {"PeakMemory", 15, false, Sum<&SummaryRecord::peak_memory_bytes>},
      {"PlanStep", 8, false, Mean<&SummaryRecord::plan_step_s, 4>},
      {"Predicted", 9, false, Mean<&SummaryRecord::predicted_step_s, 4>},
      {"Ranks", 5, false, [](Job job, double) { return Number(job.row.ranks); }},
      {"Reason", 40, true, [](Job job, double) { return job.row.reason; }},
      {"Restarts", 8, false, [](Job job, double) { return Number(job.row.job.restart_count); }},
      {"Retries", 7, false, [](Job job, double) { return Number(job.row.launch_retries); }},
      {"Robustness", 10, false, Mean<&SummaryRecord::robustness, 4>},
      {"Run", 3, false, [](Job job, double) { return Number(job.row.run_number); }},
      {"RunDir", 30, true, [](Job job, double) { return job.row.job.run_dir; }},
      {"Start", 19, false, [](Job job, double) { return ShownTime(job.row.job.start_time); }},
      {"State", 9, false, [](Job job, double) { return std::string(ToString(job.state)); }},
      {"Steps", 6, false, Sum<&SummaryRecord::steps>},
      {"StepTime", 8, false, Mean<&SummaryRecord::mean_step_s, 4>},
      {"Submit", 19, false, [](Job job, double) { return ShownTime(job.row.job.submit_time); }},
      {"Tokens", 12, false, Sum<&SummaryRecord::tokens>},
      {"Tokens/s", 8, false, Mean<&SummaryRecord::tokens_per_s, 0>},
      {"User", 9, false, [](Job job, double) { return job.row.job.user; }},
      {"ValLoss", 7, false, Mean<&SummaryRecord::validation_loss, 4>},
      {"Version", 9, false, [](Job job, double) { return job.row.job.adaptive_train_version; }},
  };
  return kFields;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return lower;
}

Result<const JobField*> FindField(std::string_view name) {
  const std::string wanted = Lower(name.substr(0, 40));
  std::vector<const JobField*> begun;
  const JobField* nearest = nullptr;
  std::size_t least = 0;
  for (const JobField& field : Fields()) {
    const std::string candidate = Lower(field.name);
    if (candidate == wanted) return &field;
    if (!wanted.empty() && candidate.substr(0, wanted.size()) == wanted) begun.push_back(&field);
    const std::size_t distance = EditDistance(candidate, wanted);
    if (nearest == nullptr || distance < least) nearest = &field, least = distance;
  }
  if (begun.size() == 1) return begun.front();
  if (begun.size() > 1) {
    return Fail(fmt::format("--format: '{}' may be {} or {}; --helpformat lists all fields", wanted,
                            begun[0]->name, begun[1]->name));
  }
  return Fail(
      fmt::format("--format: there is no field '{}'; the nearest is {}, and --helpformat lists all",
                  name.substr(0, 40), nearest->name));
}

Result<JobColumn> ParseColumn(std::string_view text) {
  const std::size_t percent = text.find('%');
  const auto field = FindField(text.substr(0, percent));
  if (!field) return tl::unexpected(field.error());
  JobColumn column{*field, (*field)->width, (*field)->left};
  if (percent == text.npos) return column;
  std::string_view width = text.substr(percent + 1);
  column.left = !width.empty() && width.front() == '-';
  if (column.left) width.remove_prefix(1);
  const auto [end, error] =
      std::from_chars(width.data(), width.data() + width.size(), column.width);
  if (error != std::errc() || end != width.data() + width.size() || column.width < 1 ||
      column.width > kMaxWidth) {
    return Fail(fmt::format(
        "--format: '{}' has no width behind %: allowed are 1 to {}, with - for left-aligned",
        text.substr(0, 80), kMaxWidth));
  }
  return column;
}

bool ContinuesCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// Stored texts are not trusted: what could move the cursor or break a line becomes '?'.
std::string OneLineOf(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are control characters as well, two bytes long in UTF-8.
    const bool high_control = c == 0xC2 && i + 1 < text.size() &&
                              static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                              static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (high_control) text.replace(i, 2, 1, '?');
    if (c < 0x20 || c == 0x7F) text[i] = '?';
  }
  return text;
}

std::string Aligned(const std::string& text, const JobColumn& column, std::string_view cut_mark) {
  const auto characters = static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !ContinuesCharacter(c); }));
  if (characters <= column.width) {
    const std::string blanks(column.width - characters, ' ');
    return column.left ? text + blanks : blanks + text;
  }
  const std::size_t kept = column.width - cut_mark.size();
  std::size_t end = 0;
  for (std::size_t seen = 0; end < text.size(); ++end) {
    if (!ContinuesCharacter(text[end]) && seen++ == kept) break;
  }
  return text.substr(0, end) + std::string(cut_mark);
}

std::string Line(const std::vector<std::string>& cells, JobTableStyle style) {
  std::string line =
      fmt::format("{}", fmt::join(cells, style == JobTableStyle::kAligned ? " " : "|"));
  if (style == JobTableStyle::kParsable) line += '|';
  if (style == JobTableStyle::kAligned) line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

std::string Header(const std::vector<JobColumn>& columns, JobTableStyle style) {
  const bool aligned = style == JobTableStyle::kAligned;
  std::vector<std::string> names, rules;
  for (const JobColumn& column : columns) {
    const std::string name(column.field->name);
    names.push_back(aligned ? Aligned(name, column, "") : name);
    rules.push_back(std::string(column.width, '-'));
  }
  return Line(names, style) + (aligned ? Line(rules, style) : "");
}

}  // namespace

Result<std::vector<JobColumn>> ParseJobFormat(std::string_view text) {
  std::string_view rest = text.empty() ? kDefaultFormat : text;
  std::vector<JobColumn> columns;
  while (true) {
    const std::size_t comma = rest.find(',');
    auto column = ParseColumn(rest.substr(0, comma));
    if (!column) return tl::unexpected(column.error());
    columns.push_back(*column);
    if (comma == rest.npos) return columns;
    rest.remove_prefix(comma + 1);
  }
}

std::string JobFieldList() {
  constexpr std::size_t kPerLine = 4;
  std::string text;
  for (std::size_t i = 0; i < Fields().size(); ++i) {
    const bool last = (i + 1) % kPerLine == 0 || i + 1 == Fields().size();
    text += last ? fmt::format("{}\n", Fields()[i].name) : fmt::format("{:<19} ", Fields()[i].name);
  }
  return text;
}

std::string RenderJobTable(const std::vector<ListedJob>& jobs,
                           const std::vector<JobColumn>& columns, JobTableStyle style,
                           bool with_header, double now) {
  std::string text = with_header ? Header(columns, style) : "";
  for (const ListedJob& job : jobs) {
    std::vector<std::string> cells;
    for (const JobColumn& column : columns) {
      const std::string cell = OneLineOf(column.field->show(job, now));
      cells.push_back(style == JobTableStyle::kAligned ? Aligned(cell, column, "+") : cell);
    }
    text += Line(cells, style);
  }
  return text;
}

std::optional<double> ElapsedSeconds(const ListedJob& job, double now) {
  if (job.state == JobState::kLost) return std::nullopt;
  return job.row.end_time.value_or(now) - job.row.job.start_time;
}

}  // namespace adaptive_train
