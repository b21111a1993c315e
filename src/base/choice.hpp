#pragma once
// What may be switched on or off, or left to the program.

namespace spillway {

enum class Choice : unsigned char { automatic, always, never };

}  // namespace spillway
