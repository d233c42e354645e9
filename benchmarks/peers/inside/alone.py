"""Becomes another program in this network namespace, once its loopback address works."""

import fcntl
import os
import socket
import struct
import sys

GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 1

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    request = struct.pack("16sh14x", b"lo", 0)
    _, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, GET_FLAGS, request))
    fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", b"lo", flags | UP))
os.execv(sys.argv[1], sys.argv[1:])
