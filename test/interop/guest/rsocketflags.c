// Preloaded before librspreload.so. That library makes an rsocket only of a type without flags, and intercepts no
// accept4; programs of today create their sockets with SOCK_CLOEXEC or SOCK_NONBLOCK. It knows no SO_REUSEPORT either.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>

static int with_flags(int fd, int flags)
{
	int (*fcntl_of_rsocket)(int, int, ...) = dlsym(RTLD_NEXT, "fcntl");

	// an rsocket has no flag for exec
	if (fd >= 0 && (flags & SOCK_NONBLOCK))
		fcntl_of_rsocket(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

int socket(int domain, int type, int protocol)
{
	int (*socket_of_rsocket)(int, int, int) = dlsym(RTLD_NEXT, "socket");
	int flags = type & (SOCK_CLOEXEC | SOCK_NONBLOCK);

	return with_flags(socket_of_rsocket(domain, type & ~flags, protocol), flags);
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
	int (*accept_of_rsocket)(int, struct sockaddr *, socklen_t *) = dlsym(RTLD_NEXT, "accept");

	return with_flags(accept_of_rsocket(fd, address, length), flags);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
	int (*setsockopt_of_rsocket)(int, int, int, const void *, socklen_t) = dlsym(RTLD_NEXT, "setsockopt");

	if (level == SOL_SOCKET && name == SO_REUSEPORT)
		return 0;
	return setsockopt_of_rsocket(fd, level, name, value, length);
}
