// Linked into the programs of sanitizer builds: modules that MPI opens stay loaded to the end of the process, so that the
// leak checker can name what it finds in them, and suppressions (leaks.txt) can tell MPI's leftovers from ours.
extern "C" int dlclose(void*) noexcept { return 0; }
