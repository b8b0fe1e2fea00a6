// Answers requests from an open database.
#pragma once

#include "db/service/caller.h"
#include "db/store_message.h"

namespace adaptive_train {

class Database;

/// The newest version of the protocol that both sides speak, or a refusal that names both.
StoreAnswer Greet(const store_request::Hello& hello);

/// Whose reports count for others: everybody's, or those of users of whom Slurm has seen a job on
/// the node (db/presence.h).
enum class Counted { kAll, kSeenBySlurm };

/// Does the part of a request that needs no database, before the writer's turn, to keep that short.
/// Where Slurm is asked, a job's own word for its account does not count.
void PrepareRequest(StoreRequest& request, Counted counted = Counted::kAll);

/// Authorizes the request and does what it asks; Refused if it may or can not. After that, the
/// caller rolls back what it has written. Throws DatabaseError; must be called inside one
/// transaction. A hello has no place here.
StoreAnswer AnswerRequest(Database& database, const Caller& caller, const StoreRequest& request,
                          Counted counted = Counted::kAll);

/// The text of an answer, or of a refusal where it is too long for a frame.
std::string AnswerText(const StoreAnswer& answer);

}  // namespace adaptive_train
