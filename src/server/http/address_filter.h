#pragma once
// Which addresses a server may be sent to by what its clients write. Pure functions, any thread.

#include <string>

namespace artery::server::http {

// True for an IPv4 or IPv6 address (text, as a resolver gives it) of the public internet. False for
// everything else: loopback, private and shared networks, link-local (cloud metadata lives there),
// unique local, multicast, documentation, reserved, the wire server of Azure, IPv6 forms that carry
// an IPv4 address (mapped, NAT64, 6to4, Teredo), and what is no address.
bool is_public_address(const std::string& address);

}  // namespace artery::server::http
