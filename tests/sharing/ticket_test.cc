// Tickets: their text, and what is wrong with one.
#include "src/library/sharing/ticket.h"

#include <gtest/gtest.h>

#include "commpool/share.h"
#include "tests/base/expect_status.h"

namespace commpool::internal {
namespace {

Ticket Full() {
  Ticket ticket;
  ticket.secret = {0x0123456789abcdef, UINT64_MAX};
  ticket.process = 4321;
  ticket.pool = 7;
  ticket.device = "0000:C1:00.0";
  ticket.block = UINT64_MAX;
  ticket.address = 0x7f0012345000;
  ticket.bytes = 1 << 20;
  ticket.socket = "/run/user/1000/commpool/a folder, with all/0011223344556677";
  return ticket;
}

TEST(Tickets, ComeBackFromTheirText) {
  const Ticket ticket = Full();
  for (const char* const end : {"\r\n", "\t", " \n\n", " \t\r\n"}) {
    EXPECT_TRUE(Ticket::Parse(ticket.Text() + end).ok());
    EXPECT_TRUE(Ticket::Parse(end + ticket.Text()).ok());
  }
  EXPECT_FALSE(Ticket::Parse(" \r\n").ok());
  const Ticket read = Ticket::Parse(ticket.Text() + " \n").value();
  EXPECT_EQ(read.secret, ticket.secret);
  EXPECT_EQ(read.process, ticket.process);
  EXPECT_EQ(read.pool, ticket.pool);
  EXPECT_EQ(read.device, ticket.device);
  EXPECT_EQ(read.block, ticket.block);
  EXPECT_EQ(read.address, ticket.address);
  EXPECT_EQ(read.bytes, ticket.bytes);
  EXPECT_EQ(read.socket, ticket.socket);
}

TEST(Tickets, FitTheRoomOfPrograms) {
  Ticket ticket = Full();
  ticket.process = ticket.pool = ticket.address = ticket.bytes = UINT64_MAX;
  ticket.socket = std::string(107, 'x');  // the longest name of a socket
  EXPECT_LE(ticket.Text().size(), kMostTicketBytes);
}

TEST(Tickets, ThatAreNoneAreRefused) {
  for (const char* const text : {"", "ticket", "commpool", "COMMPOOL-TICKET-1,0,0"}) {
    SCOPED_TRACE(text);
    ExpectFailure(Ticket::Parse(text).status(), StatusCode::kInvalidArgument, "is no ticket of commpool");
  }
  ExpectFailure(Ticket::Parse("\x1b[2J\n").status(), StatusCode::kInvalidArgument, "\\x1b[2J");
}

TEST(Tickets, ThatWereCutAnywhereAreRefused) {
  const std::string text = Full().Text();
  for (size_t bytes = 0; bytes < text.size(); ++bytes) {
    EXPECT_EQ(Ticket::Parse(text.substr(0, bytes)).status().code(), StatusCode::kInvalidArgument) << bytes;
  }
  ExpectFailure(Ticket::Parse(text.substr(0, 60)).status(), StatusCode::kInvalidArgument, "was cut or changed");
}

TEST(Tickets, ThatWereChangedAnywhereAreRefused) {
  const std::string text = Full().Text();
  for (size_t place = 0; place < text.size(); ++place) {
    std::string changed = text;
    changed[place] = changed[place] == '0' ? '1' : '0';
    EXPECT_FALSE(Ticket::Parse(changed).ok()) << place;
  }
}

TEST(Tickets, OfANewerVersionSayThatTheyAre) {
  std::string text = Full().Text();
  text.replace(text.find("-1,"), 3, "-2,");
  ExpectFailure(Ticket::Parse(text).status(), StatusCode::kNotSupported, "a newer commpool");
  text.replace(text.find("-2,"), 3, "-99999999999999999999,");
  ExpectFailure(Ticket::Parse(text).status(), StatusCode::kInvalidArgument, "was cut or changed");
}

TEST(Tickets, KeepTheirSecretsOutOfMessages) {
  const std::string text = Full().Text();
  const std::string told = Ticket::Parse(text + "x").status().message();
  EXPECT_EQ(told.find("0123456789abcdef"), std::string::npos) << told;
}

}  // namespace
}  // namespace commpool::internal
