#include "server/http/address_filter.h"

#include <array>
#include <boost/asio/ip/address.hpp>
#include <cstdint>

namespace artery::server::http {
namespace {

namespace ip = boost::asio::ip;

struct Block4 {
  std::uint32_t first;
  int bits;
};

// IANA's special-purpose registry, less what is globally reachable.
constexpr std::array<Block4, 17> kNotPublic = {{
    {0x00000000, 8},   // this network
    {0x0A000000, 8},   // private
    {0x64400000, 10},  // shared, behind carriers; Alibaba's metadata
    {0x7F000000, 8},   // loopback
    {0xA9FE0000, 16},  // link-local; metadata of most clouds
    {0xAC100000, 12},  // private
    {0xC0000000, 24},  // protocol assignments; Oracle's metadata
    {0xC0000200, 24},  // documentation
    {0xC0586300, 24},  // 6to4 relays
    {0xC0A80000, 16},  // private
    {0xC6120000, 15},  // benchmarks
    {0xC6336400, 24},  // documentation
    {0xCB007100, 24},  // documentation
    {0xE0000000, 4},   // multicast
    {0xF0000000, 4},   // reserved, broadcast
    {0xA83F8110, 32},  // 168.63.129.16: Azure's wire server
    {0xC0AF3000, 24}   // 192.175.48/24: AS112
}};

bool is_public(const ip::address_v4& address) {
  const std::uint32_t value = address.to_uint();
  for (const Block4& block : kNotPublic)
    if ((value ^ block.first) >> (32 - block.bits) == 0) return false;
  return true;
}

bool is_public(const ip::address_v6& address) {
  const auto b = address.to_bytes();
  const std::uint32_t head = static_cast<std::uint32_t>(b[0]) << 24 |
                             static_cast<std::uint32_t>(b[1]) << 16 |
                             static_cast<std::uint32_t>(b[2]) << 8 | b[3];
  // Only 2000::/3 is given out; mapped, NAT64, local and multicast addresses lie outside of it.
  if (head >> 29 != 1) return false;
  const bool is_protocol = head >> 9 == 0x20010000U >> 9;  // 2001::/23, Teredo with it
  const bool is_6to4 = head >> 16 == 0x2002;
  const bool is_documentation = head == 0x20010DB8 || head >> 12 == 0x3FFF0;
  return !is_protocol && !is_6to4 && !is_documentation;
}

}  // namespace

bool is_public_address(const std::string& address) {
  boost::system::error_code error;
  const ip::address parsed = ip::make_address(address, error);
  if (error) return false;
  return parsed.is_v4() ? is_public(parsed.to_v4()) : is_public(parsed.to_v6());
}

}  // namespace artery::server::http
