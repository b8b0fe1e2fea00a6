// What is refused of those who are no client, or no service, and say that they are.

#include <arpa/inet.h>
#include <netinet/in.h>

#include <thread>

#include "core/token_proof.h"
#include "db/sealed_frames.h"
#include "tests/unit/db_service/network_fixture.h"

namespace adaptive_train::forgery_test {
namespace {

using ::testing::HasSubstr;

/// A credential as anybody can make one.
struct Forgery {
  std::string text;
  uid_t reader = ::geteuid();
  int cipher = MUNGE_CIPHER_AES256;
  int ttl = MUNGE_TTL_DEFAULT;

  std::string By(const std::string& socket) const {
    munge_ctx_t context = ::munge_ctx_create();
    ::munge_ctx_set(context, MUNGE_OPT_SOCKET, socket.c_str());
    ::munge_ctx_set(context, MUNGE_OPT_CIPHER_TYPE, cipher);
    ::munge_ctx_set(context, MUNGE_OPT_UID_RESTRICTION, reader);
    ::munge_ctx_set(context, MUNGE_OPT_TTL, ttl);
    char* credential = nullptr;
    ::munge_encode(&credential, context, text.data(), static_cast<int>(text.size()));
    ::munge_ctx_destroy(context);
    if (credential == nullptr) throw std::runtime_error("munged makes no credential");
    std::string made(credential);
    std::free(credential);
    return made;
  }
};

class ForgeryTest : public NetworkTest {
 protected:
  void SetUp() override { StartTcp(); }

  SessionOffer Offer(const std::string& challenge) const {
    const auto nonce = ReadChallenge(challenge);
    if (!nonce) throw std::runtime_error(nonce.error().message);
    return {Remote().address, *nonce, NewNonce(), NewNonce()};
  }

  /// What the service says to the credential that `forge` makes of an offer for this connection.
  std::string Told(const std::function<std::string(SessionOffer)>& forge) const {
    RawSocket socket(Remote());
    socket.Send(forge(Offer(socket.Receive())));
    return socket.Receive();
  }
  /// What is to be said to each, after which the service serves on.
  void ExpectRefusals(
      const std::vector<std::pair<std::string, std::function<std::string(SessionOffer)>>>&
          forgeries) const {
    for (const auto& [why, forge] : forgeries) EXPECT_THAT(Told(forge), HasSubstr(why));
    EXPECT_EQ(RemotelyAs(kAnn, JobsSeen), "");
  }
  /// With a text in the offer's place.
  std::string ToldOfText(const std::function<std::string(const SessionOffer&)>& text) const {
    return Told(
        [&](const SessionOffer& offer) { return Forgery{text(offer)}.By(munged_.Socket()); });
  }
};

TEST_F(ForgeryTest, WhatMungeDoesNotVouchForIsRefused) {
  const Munged foreign(folder_ / "foreign");
  const Munged early(folder_ / "early", munged_, EARLY_CLOCK);
  const auto munged = munged_.Socket();
  ExpectRefusals({
      {"no credential of munge", [](SessionOffer) { return ""; }},
      {"no credential of munge", [](SessionOffer) { return std::string(4096, 'A'); }},
      {"munge: ", [](SessionOffer) { return "MUNGE:"; }},
      {"munge: ", [](SessionOffer) { return "MUNGE:" + std::string(4000, 'A'); }},
      {"not so long", [](SessionOffer) { return std::string(4097, 'A'); }},
      {"munge: Invalid credential",
       [&](const SessionOffer& offer) { return Forgery{ToText(offer)}.By(foreign.Socket()); }},
      {"munge: ",
       [&](const SessionOffer& offer) {
         std::string credential = Forgery{ToText(offer)}.By(munged);
         credential[credential.size() / 2] ^= 1;
         return credential;
       }},
      {"munge: ",
       [&](const SessionOffer& offer) { return Forgery{ToText(offer)}.By(munged).substr(0, 200); }},
      {"munge: Expired credential",
       [&](const SessionOffer& offer) {
         const std::string credential = Forgery{ToText(offer), ::geteuid(), 5, 1}.By(munged);
         std::this_thread::sleep_for(std::chrono::milliseconds(2100));
         return credential;
       }},
      {"munge: Rewound credential",
       [&](const SessionOffer& offer) { return Forgery{ToText(offer)}.By(early.Socket()); }},
      {"munge: Unauthorized credential",
       [&](const SessionOffer& offer) {
         return Forgery{ToText(offer), kBob}.By(munged);
       }},
      {"munge: Replayed credential",
       [&](const SessionOffer& offer) {
         const std::string credential = Forgery{ToText(offer)}.By(munged);
         const auto seen = MungeDecode(credential, munged);
         return credential;
       }},
  });
}

TEST_F(ForgeryTest, AGoodCredentialOfAnotherKindIsRefused) {
  const std::string good_for_another = [&] {
    RawSocket socket(Remote());
    return Forgery{ToText(Offer(socket.Receive()))}.By(munged_.Socket());
  }();
  const auto munged = munged_.Socket();
  ExpectRefusals({
      {"may be decoded by others",
       [&](const SessionOffer& offer) {
         return Forgery{ToText(offer), static_cast<uid_t>(MUNGE_UID_ANY)}.By(munged);
       }},
      {"was not encrypted",
       [&](const SessionOffer& offer) {
         return Forgery{ToText(offer), ::geteuid(), MUNGE_CIPHER_NONE}.By(munged);
       }},
      {"made for another connection", [&](SessionOffer) { return good_for_another; }},
      {"munge: Replayed credential", [&](SessionOffer) { return good_for_another; }},
      {"stands for users that this host does not know",
       [&](const SessionOffer& offer) {
         return InChild([&] {
           BecomeUser(65534);
           return Forgery{ToText(offer), 0}.By(munged);
         });
       }},
  });
}

TEST_F(ForgeryTest, WhatIsNoOfferOfThisSessionIsRefused) {
  const auto changed = [](std::string SessionOffer::*member, std::string value) {
    return [=](SessionOffer offer) {
      offer.*member = value;
      return ToText(offer);
    };
  };
  const std::string no_offer = "holds no offer";
  EXPECT_THAT(ToldOfText([](const SessionOffer&) { return ""; }), HasSubstr(no_offer));
  EXPECT_THAT(ToldOfText([](const SessionOffer& offer) { return ToText(offer) + "\n"; }),
              HasSubstr(no_offer));
  EXPECT_THAT(ToldOfText([](const SessionOffer& offer) { return AcceptanceOf(offer); }),
              HasSubstr(no_offer));
  EXPECT_THAT(ToldOfText([](const SessionOffer& offer) {
                std::string newer = ToText(offer);
                return newer.replace(newer.find(" 1\n"), 2, " 2");
              }),
              HasSubstr(no_offer));
  EXPECT_THAT(ToldOfText(changed(&SessionOffer::key, "0123")), HasSubstr(no_offer));
  EXPECT_THAT(ToldOfText(changed(&SessionOffer::key, std::string(64, 'G'))), HasSubstr(no_offer));
  EXPECT_THAT(ToldOfText(changed(&SessionOffer::client_nonce, "")), HasSubstr(no_offer));
  EXPECT_THAT(ToldOfText(changed(&SessionOffer::service, "other:6822")),
              HasSubstr("you look for adaptive-traind at other:6822"));
  EXPECT_THAT(ToldOfText(changed(&SessionOffer::service_nonce, NewNonce())),
              HasSubstr("made for another connection"));
  EXPECT_EQ(RemotelyAs(kAnn, JobsSeen), "");
}

/// A connection of an honest client, whose frames the test has in its hands.
struct HonestSession {
  HonestSession(const StoreLocation& location, const std::string& munged)
      : socket(std::make_unique<RawSocket>(location)) {
    const SessionOffer offer{location.address, ReadChallenge(socket->Receive()).value(), NewNonce(),
                             NewNonce()};
    socket->Send(Forgery{ToText(offer)}.By(munged));
    const auto said = MungeDecode(socket->Receive(), munged);
    if (!said || said->text != AcceptanceOf(offer)) throw std::runtime_error("not accepted");
    sealed.emplace(offer, SealedFrames::End::kClient);
  }
  std::string Hello() { return sealed->Seal(ToText(store_request::Hello{})); }
  std::string Clusters() { return sealed->Seal(ToText(store_request::MeasuredClusters{})); }
  std::string Answer() {
    const auto text = sealed->Open(socket->Receive());
    return text ? *text : text.error().message;
  }

  std::unique_ptr<RawSocket> socket;
  std::optional<SealedFrames> sealed;
};

TEST_F(ForgeryTest, AFrameThatIsNotTheSessionsNextEndsIt) {
  const std::vector<std::function<std::string(HonestSession&, const std::string&)>> frames = {
      [](HonestSession&, const std::string&) { return ToText(store_request::MeasuredClusters{}); },
      [](HonestSession&, const std::string&) { return std::string(); },
      [](HonestSession&, const std::string& hello) { return hello; },  // once more
      [](HonestSession& session, const std::string&) {                 // one is left out
        session.Clusters();
        return session.Clusters();
      },
      [](HonestSession& session, const std::string&) {
        std::string frame = session.Clusters();
        frame[3] ^= 1;
        return frame;
      },
      [](HonestSession& session, const std::string&) {
        return session.Clusters().substr(0, SealedFrames::kTagBytes);
      },
      [&](HonestSession&, const std::string&) {
        HonestSession other(Remote(), munged_.Socket());
        other.Hello();
        return other.Clusters();
      }};
  for (const auto& frame : frames) {
    HonestSession session(Remote(), munged_.Socket());
    const std::string hello = session.Hello();
    session.socket->Send(hello);
    ASSERT_THAT(session.Answer(), HasSubstr("\"welcome\""));
    session.socket->Send(frame(session, hello));
    EXPECT_EQ(session.socket->Receive(), "closed");
  }
  HonestSession session(Remote(), munged_.Socket());
  session.socket->Send(session.Hello());
  const std::string welcome = session.socket->Receive();
  ASSERT_TRUE(session.sealed->Open(welcome));
  session.socket->Send(welcome);  // its own words
  EXPECT_EQ(session.socket->Receive(), "closed");
  EXPECT_EQ(RemotelyAs(kAnn, JobsSeen), "");
}

/// Takes the place of a service for one client: `answer` makes the second frame of the first.
class FalseService {
 public:
  explicit FalseService(int port) {
    listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    const int on = 1;
    ::setsockopt(listening_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(listening_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listening_, 4) != 0)
      throw std::runtime_error("no false service");
  }
  ~FalseService() { ::close(listening_); }

  /// What a client says that it meets, once.
  std::string Met(const StoreLocation& location, const std::string& challenge,
                  const std::function<std::string(const std::string&)>& answer) const {
    std::thread serving([&] {
      RawSocket client(::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC));
      client.Send(challenge);
      const std::string credential = client.Receive();
      if (credential != "closed") client.Send(answer(credential));
      client.Receive();
    });
    const auto store = RemoteStore::Open(location, {std::chrono::seconds(20), true});
    serving.join();
    return store ? "taken for the service" : store.error().message;
  }

 private:
  int listening_ = -1;
};

TEST_F(NetworkTest, AFalseServiceIsFoundOutByItsClient) {
  const FalseService service(port_);
  const std::string munged = munged_.Socket(), challenge = ChallengeOf(NewNonce());
  const auto accepted = [&](const std::string& credential) {
    return AcceptanceOf(ReadSessionOffer(MungeDecode(credential, munged)->text).value());
  };
  const auto met = [&](const std::function<std::string(const std::string&)>& answer) {
    return service.Met(Remote(), challenge, answer);
  };
  EXPECT_THAT(met([&](const std::string&) { return Forgery{"accepted"}.By(munged); }),
              HasSubstr("has accepted another session"));
  EXPECT_THAT(met([&](const std::string& credential) {
                return Forgery{accepted(credential), kBob}.By(munged);
              }),
              HasSubstr("munge: Unauthorized credential"));
  EXPECT_THAT(met([&](const std::string& credential) {
                return Forgery{accepted(credential), static_cast<uid_t>(-1)}.By(munged);
              }),
              HasSubstr("may be decoded by others"));
  EXPECT_THAT(met([&](const std::string& credential) { return credential; }),
              HasSubstr("has accepted another session"));
  EXPECT_THAT(met([&](const std::string& credential) {
                const std::string seen = Forgery{accepted(credential)}.By(munged);
                const auto decoded = MungeDecode(seen, munged);
                return seen;
              }),
              HasSubstr("munge: Replayed credential"));
  EXPECT_THAT(met([&](const std::string&) { return "hello"; }),
              HasSubstr("does not introduce itself"));
  EXPECT_THAT(met([&](const std::string&) {
                return InChild([&] {
                  BecomeUser(kBob);
                  return Forgery{"accepted", 0}.By(munged);
                });
              }),
              HasSubstr("what answers belongs to uid 61002, and adaptive-traind to 0"));
  for (const char* text : {"", "hello", "adaptive-traind session 2\n", "SSH-2.0-OpenSSH_9.2"})
    EXPECT_THAT(service.Met(Remote(), text, accepted), HasSubstr("does not introduce itself"));
  EXPECT_THAT(service.Met(Remote(), ToText(store_answer::Refused{"full\nto the brim"}), accepted),
              HasSubstr("full"));
  // A service that accepts all, but then does not have the key.
  EXPECT_THAT(
      met([&](const std::string& credential) { return Forgery{accepted(credential)}.By(munged); }),
      HasSubstr("the connection is lost"));
}

}  // namespace
}  // namespace adaptive_train::forgery_test
