// What adaptive-traind is told on its command line and in its settings file.
#pragma once

#include <string>

#include <tl/expected.hpp>

#include "db/service/backups.h"
#include "db/service/retention.h"
#include "db/service/rights.h"
#include "db/service/user_budgets.h"
#include "db/store_location.h"

namespace adaptive_train {

struct Arguments {
  std::string database = "/var/lib/adaptive-train/profiles.db";
  std::string socket = kServiceSocket;
  std::string metrics, metrics_listen;  // a file, HOST:PORT; empty: none
  std::string tcp, tcp_listen, munge_socket;
  bool ask_slurm = true;
  Backups::Settings backups;  // without a folder there are none
  /// What a reload changes.
  struct Renewable {
    Rights rights;
    Retention retention;
    UserBudgets::Limits of_user;
  } renewable;

  /// Of what a reload does not change.
  bool SameButRenewable(const Arguments& other) const;
};

/// Reads both; may be called again. The error is the exit code: 0 after help or version, which were
/// printed, else what is wrong is logged.
tl::expected<Arguments, int> ReadArguments(int argc, char** argv);

}  // namespace adaptive_train
