// What adaptive-traind answers under load, beside what the disk itself takes.
//
// usage: store_load FOLDER ADAPTIVE-TRAIND [JOBS SESSIONS RATE SECONDS], by default 1000000 1000 2000 60
//
// Makes a store of JOBS jobs of 50 users in FOLDER, which must be on the disk that matters; one
// that is there is used as it is, with all that earlier calls have written. Starts the service on
// it. SESSIONS connections of these users stay open; each has begun a job.
//
// RATE requests a second arrive at random times, whether or not those before are answered (open
// loop). Each goes to an idle session. Nine of ten read: the user's newest 50 jobs, the profile of
// 16 nodes, a job's failures. One records a launch, a failure or figures. Times count from the
// arrival.
//
// Prints the 50th and 99th percentile and the longest of each kind, and of fdatasync alone. Prints
// how many were refused or took more than 5 s, and the processor seconds of the service. This
// program takes part of the same processors. Then, without load, what `adaptive-train jobs` takes,
// which must lie beside ADAPTIVE-TRAIND. Needs root, to be several users.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/seconds.h"
#include "db/database.h"
#include "db/file_store.h"
#include "db/store_message.h"

namespace adaptive_train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kUsers = 50, kNodes = 500;
constexpr uid_t kFirstUser = 62000;
constexpr double kLateS = 5;

struct Arguments {
  std::filesystem::path folder;
  std::string service;
  std::int64_t jobs = 1'000'000;
  int sessions = 1000;
  double rate = 2000, seconds = 60;
};

[[noreturn]] void Give(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

std::string Node(std::int64_t number) { return fmt::format("n{}", number % kNodes); }

/// Milliseconds.
struct Times {
  std::vector<double> all;

  void Print(const char* what) {
    if (all.empty()) return fmt::print("{:<34} none\n", what);
    std::ranges::sort(all);
    const auto at = [&](double share) {
      return all[static_cast<std::size_t>(share * static_cast<double>(all.size() - 1))];
    };
    fmt::print("{:<34} {:>7}  p50 {:8.2f} ms  p99 {:8.2f} ms  longest {:8.2f} ms\n", what,
               all.size(), at(0.5), at(0.99), all.back());
  }
};

/// Syncs of 4 KiB, as the disk takes them without us.
Times SyncsOf(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "synced";
  const int file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) Give(path);
  const std::string page(4096, 'x');
  Times times;
  for (int i = 0; i < 500; ++i) {
    const auto start = Clock::now();
    if (::pwrite(file, page.data(), page.size(), i * 4096) < 0 || ::fdatasync(file) != 0)
      Give(path);
    times.all.push_back(1e3 * std::chrono::duration<double>(Clock::now() - start).count());
  }
  ::close(file);
  return times;
}

/// Past jobs of all users, spread over a year: nodes, a summary; a failure for one in fifty.
void FillStore(const std::filesystem::path& path, std::int64_t jobs) {
  {
    auto store = FileStore::Open(StoreLocation{path});
    if (!store) throw std::runtime_error(store.error().message);
  }
  Database database(path.string());
  database.Run("PRAGMA synchronous = OFF");
  Transaction transaction(database, Transaction::Kind::kWrites);
  Statement job(
      database,
      "INSERT INTO jobs (id, cluster, slurm_job_id, restart_count, submit_time, run_number, user,"
      " name, run_dir, config, options, adaptive_train_version, start_time, end_time, state,"
      " exit_code, launcher_host, launcher_boot_id, launcher_pid_namespace, launcher_pid,"
      " launcher_start_ticks, owner) VALUES (?1, 'alpha', ?1, 0, ?2, 0, ?3, 'job', '/home/runs/1',"
      " ?4, 'reuse=auto', '0.1.0', ?2, ?2 + 3600, 'COMPLETED', 0, 'host', 'boot', 'pid', 1, 1, "
      "?3)");
  Statement node(database,
                 "INSERT INTO nodes (job_id, position, name, source, cpu_model, cores,"
                 " memory_bytes, snapshot_hash) VALUES (?1, ?2, ?3, 'prolog', 'cpu', 64, 1, '{}')");
  Statement summary(
      database,
      "INSERT INTO summaries (job_id, steps, tokens, grad_bytes, param_bytes, activation_bytes,"
      " peak_memory_bytes) VALUES (?1, 1000, 1000000, 1, 1, 1, 1)");
  Statement failure(
      database,
      "INSERT INTO failures (job_id, time, host, kind, operation, peer, cause, blamed, cluster, "
      "owner)"
      " VALUES (?1, ?2, ?3, 'node_silent', 'all_reduce', '', 'no heartbeat', 'node', 'alpha', ?4)");
  const std::string config(600, '#');
  const double now = EpochSecondsNow(), year = 365 * 86400.0;
  for (std::int64_t id = 1; id <= jobs; ++id) {
    const double start =
        now - year + year * static_cast<double>(id) / static_cast<double>(jobs + 1);
    const std::int64_t user = kFirstUser + id % kUsers;
    job.Bind(id, start, user, config).Run();
    for (std::int64_t i = 0; i < 2; ++i) node.Bind(id, i, Node(7 * id + i)).Run();
    summary.Bind(id).Run();
    if (id % 50 == 0) failure.Bind(id, start, Node(7 * id), user).Run();
  }
  // By default reports count where Slurm has seen their users' jobs.
  database.Run(
      fmt::format("INSERT INTO presence (cluster, node, owner, since, until)"
                  " SELECT DISTINCT 'alpha', nodes.name, jobs.owner, {0}, {1} FROM nodes JOIN jobs "
                  "ON job_id = jobs.id",
                  now - year, now + 86400));
  transaction.Commit();
}

/// The service, until it is destroyed.
class Service {
 public:
  Service(const std::string& program, const std::filesystem::path& database,
          const std::filesystem::path& socket) {
    child_ = ::fork();
    if (child_ != 0) return;
    ::execl(program.c_str(), program.c_str(), "--database", database.c_str(), "--socket",
            socket.c_str(), nullptr);
    ::_exit(127);
  }
  ~Service() {
    ::kill(child_, SIGTERM);
    ::waitpid(child_, nullptr, 0);
  }

  /// Of processors, so far.
  double CpuSeconds() const {
    clockid_t clock{};
    timespec time{};
    if (::clock_getcpuclockid(child_, &clock) != 0 || ::clock_gettime(clock, &time) != 0)
      Give("the service's processor time");
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

 private:
  pid_t child_ = -1;
};

/// What `adaptive-train jobs` takes from its start to its end for a user, with these words.
Times JobsCommand(const std::filesystem::path& folder, const std::filesystem::path& socket,
                  std::vector<std::string> words) {
  words.insert(words.begin(), {(folder / "adaptive-train").string(), "jobs"});
  words.insert(words.end(), {"--store", "unix:" + socket.string()});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  Times times;
  for (int i = 0; i < 20; ++i) {
    const auto start = Clock::now();
    const pid_t child = ::fork();
    if (child == 0) {
      const int nowhere = ::open("/dev/null", O_WRONLY);
      if (nowhere < 0 || ::dup2(nowhere, 1) < 0 || ::setuid(kFirstUser) != 0) ::_exit(127);
      ::setenv("HOME", "/", 1);  // whose settings he may read
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    if (status != 0) throw std::runtime_error(words[0] + " jobs failed");
    times.all.push_back(1e3 * std::chrono::duration<double>(Clock::now() - start).count());
  }
  return times;
}

/// A socket to the service that belongs to `user`.
int ConnectAs(uid_t user, const std::filesystem::path& path) {
  const int made = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  if (::seteuid(user) != 0) Give("being another user");
  int connected = -1;
  for (int i = 0; i < 600; ++i) {
    connected = ::connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    if (connected == 0) break;
    ::usleep(100'000);
  }
  if (::seteuid(0) != 0) Give("being root again");
  if (connected != 0) Give("connecting to the service");
  return made;
}

enum class Kind { kNewest, kProfile, kFailures, kWrite };
constexpr const char* kKinds[] = {"newest 50 jobs of a user", "profile of 16 nodes",
                                  "failures of a job", "durable writes"};

/// One connection: a request, its answer, the next.
class Session {
 public:
  Session(uid_t user, const std::filesystem::path& path)
      : user_(user), socket_(ConnectAs(user, path)) {}

  int Descriptor() const { return socket_; }
  uid_t User() const { return user_; }

  void Send(const std::string& text) {
    const std::string frame = FrameOf(text);
    // Requests are small: they fit the socket's buffer.
    if (::send(socket_, frame.data(), frame.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(frame.size()))
      Give("sending");
  }
  /// The answer's text once it is there as a whole; waits for more of it first.
  std::optional<std::string> Receive() {
    char bytes[65536];
    const ssize_t got = ::recv(socket_, bytes, sizeof bytes, 0);
    if (got <= 0) Give("the service closed a connection");
    received_.append(bytes, static_cast<std::size_t>(got));
    if (received_.size() < kFrameHeaderBytes) return std::nullopt;
    const std::size_t size = FrameSize(received_.data());
    if (received_.size() < kFrameHeaderBytes + size) return std::nullopt;
    std::string text = received_.substr(kFrameHeaderBytes, size);
    received_.clear();
    return text;
  }
  std::string Ask(const StoreRequest& request) {
    Send(ToText(request));
    while (true)
      if (auto text = Receive()) return *text;
  }
  void Begin(std::int64_t number) {
    Ask(store_request::Hello{});
    JobRecord job;
    job.cluster = "alpha";
    job.slurm_job_id = 10'000'000 + number;
    job.submit_time = job.start_time = EpochSecondsNow();
    job.launcher = LauncherProcess{"host", "boot", "pid", 1, 1};
    job.uid = NewRunUid();
    const auto answer = ReadStoreAnswer(Ask(store_request::BeginJob{job}));
    const auto* id = answer ? std::get_if<std::int64_t>(&*answer) : nullptr;
    if (id == nullptr) throw std::runtime_error("the service began no job");
    job_ = *id;
  }

  StoreRequest Request(Kind which, std::mt19937& random) {
    switch (which) {
      case Kind::kNewest: {
        JobQuery query;
        query.all_users = true;  // that the user may see: his own
        query.newest = 50;
        return store_request::FindJobs{query};
      }
      case Kind::kProfile: {
        ProfileQuery query{"alpha", {}, {"cpu"}, "model", EpochSecondsNow()};
        for (int i = 0; i < 16; ++i) query.nodes.push_back(Node(random()));
        return store_request::ProfileOf{query};
      }
      case Kind::kFailures:
        return store_request::FailuresOf{job_};
      case Kind::kWrite:
        break;
    }
    return store_request::Record{job_, {++entries_, Entry(random)}};
  }

  bool busy = false;
  Kind kind = Kind::kNewest;
  Clock::time_point arrived;

 private:
  static LedgerEntry Entry(std::mt19937& random) {
    const unsigned which = random() % 3;
    if (which == 0) return LaunchRecord{1, EpochSecondsNow(), LaunchOutcome::kOk, ""};
    if (which == 1) {
      FailureRecord failure;
      failure.time = EpochSecondsNow();
      failure.host = Node(random());
      failure.kind = FailureKind::kKilled;
      return failure;
    }
    MeasuredRecord measured{"alpha", {}};
    for (int i = 0; i < 16; ++i)
      measured.profile.links.push_back(
          {Node(random()), Node(random()), 1e-5, 1e9, {1, 0.05, EpochSecondsNow()}});
    return measured;
  }

  uid_t user_;
  int socket_;
  std::int64_t job_ = 0, entries_ = 0;
  std::string received_;
};

class Load {
 public:
  Load(const Arguments& arguments, const std::filesystem::path& socket) : arguments_(arguments) {
    poll_ = ::epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < arguments.sessions; ++i) {
      sessions_.push_back(
          std::make_unique<Session>(kFirstUser + static_cast<uid_t>(i % kUsers), socket));
      sessions_.back()->Begin(i);
      epoll_event event{.events = EPOLLIN, .data = {.u32 = static_cast<std::uint32_t>(i)}};
      ::epoll_ctl(poll_, EPOLL_CTL_ADD, sessions_.back()->Descriptor(), &event);
    }
  }

  void Run() {
    std::exponential_distribution<double> gap(arguments_.rate);
    const auto start = Clock::now();
    const auto after = [&](double seconds) {
      return start +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    };
    double next = gap(random_);
    while (next < arguments_.seconds || answered_ < asked_) {
      const auto now = Clock::now();
      while (next < arguments_.seconds && after(next) <= now) {
        waiting_.push_back(after(next));
        next += gap(random_);
        ++asked_;
      }
      SendWaiting();
      Await(next < arguments_.seconds ? after(next) : now + std::chrono::seconds(1));
      if (now > after(arguments_.seconds + 60))
        throw std::runtime_error("the service does not catch up within 60 s");
    }
  }

  void Print() {
    for (std::size_t kind = 0; kind < std::size(kKinds); ++kind) times_[kind].Print(kKinds[kind]);
    Times reads;
    for (std::size_t kind = 0; kind < 3; ++kind)
      reads.all.insert(reads.all.end(), times_[kind].all.begin(), times_[kind].all.end());
    reads.Print("all reads");
    fmt::print("{} requests, {} refused, {} after more than {} s, {} times no session was idle\n",
               answered_, refused_, late_, kLateS, none_idle_);
  }

 private:
  /// A session that waits for nothing, by chance.
  Session* Idle() {
    const std::size_t first = random_() % sessions_.size();
    for (std::size_t i = 0; i < sessions_.size(); ++i) {
      Session& session = *sessions_[(first + i) % sessions_.size()];
      if (!session.busy) return &session;
    }
    return nullptr;
  }
  Kind Any() {
    const unsigned of_ten = random_() % 10;
    return of_ten < 4   ? Kind::kNewest
           : of_ten < 7 ? Kind::kProfile
           : of_ten < 9 ? Kind::kFailures
                        : Kind::kWrite;
  }
  void SendWaiting() {
    while (!waiting_.empty()) {
      Session* session = Idle();
      if (session == nullptr) {
        ++none_idle_;
        return;
      }
      session->busy = true;
      session->kind = Any();
      session->arrived = waiting_.front();
      waiting_.pop_front();
      session->Send(ToText(session->Request(session->kind, random_)));
    }
  }
  void Await(Clock::time_point until) {
    epoll_event events[64];
    // To the microsecond: a poll that returns early would spin on the service's processors.
    const auto left = std::max<std::int64_t>(
        0, std::chrono::duration_cast<std::chrono::nanoseconds>(until - Clock::now()).count());
    const timespec wait{left / 1'000'000'000, left % 1'000'000'000};
    const int ready = ::epoll_pwait2(poll_, events, 64, &wait, nullptr);
    for (int i = 0; i < ready; ++i) {
      Session& session = *sessions_[events[i].data.u32];
      const auto text = session.Receive();
      if (!text) continue;
      const double ms = 1e3 * std::chrono::duration<double>(Clock::now() - session.arrived).count();
      times_[static_cast<std::size_t>(session.kind)].all.push_back(ms);
      ++answered_;
      late_ += ms > 1e3 * kLateS;
      refused_ += text->substr(0, 60).find("\"refused\"") != std::string::npos;
      session.busy = false;
    }
  }

  const Arguments& arguments_;
  int poll_ = -1;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::deque<Clock::time_point> waiting_;  // arrivals that found no idle session
  std::mt19937 random_{7};
  Times times_[std::size(kKinds)];
  std::int64_t asked_ = 0, answered_ = 0, refused_ = 0, late_ = 0, none_idle_ = 0;
};

Arguments ArgumentsFrom(int argc, char** argv) {
  if (argc < 3 || argc > 7)
    throw std::runtime_error(
        "usage: store_load FOLDER ADAPTIVE-TRAIND [JOBS SESSIONS RATE SECONDS]");
  Arguments arguments{argv[1], argv[2]};
  if (argc > 3) arguments.jobs = std::stoll(argv[3]);
  if (argc > 4) arguments.sessions = std::stoi(argv[4]);
  if (argc > 5) arguments.rate = std::stod(argv[5]);
  if (argc > 6) arguments.seconds = std::stod(argv[6]);
  return arguments;
}

void Run(const Arguments& arguments) {
  std::filesystem::create_directories(arguments.folder);
  std::filesystem::permissions(arguments.folder, std::filesystem::perms(0755));
  const std::filesystem::path database = arguments.folder / "profiles.db",
                              socket = arguments.folder / "socket";
  if (!std::filesystem::exists(database)) FillStore(database, arguments.jobs);
  fmt::print("a store of {} jobs, {} MiB\n", arguments.jobs,
             std::filesystem::file_size(database) >> 20);
  SyncsOf(arguments.folder).Print("fdatasync of 4 KiB, nothing else");
  Service service(arguments.service, database, socket);
  Load load(arguments, socket);
  load.Run();
  load.Print();
  fmt::print("the service took {:.2f} processors\n", service.CpuSeconds() / arguments.seconds);
  const auto programs = std::filesystem::path(arguments.service).parent_path();
  JobsCommand(programs, socket, {"-a", "--newest", "50"}).Print("adaptive-train jobs --newest 50");
  JobsCommand(programs, socket, {"-a", "-j", "4242"}).Print("adaptive-train jobs -j");
}

}  // namespace
}  // namespace adaptive_train

int main(int argc, char** argv) {
  try {
    adaptive_train::Run(adaptive_train::ArgumentsFrom(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "store_load: {}\n", error.what());
    return 1;
  }
}
