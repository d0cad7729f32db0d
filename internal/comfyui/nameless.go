package comfyui

import (
	"errors"
	"net"
	"net/url"
)

// nameless is an error of the network without the address at which it happened.
// Its text goes into the reasons of lost runs, which clients are shown, and
// only the operator may know where an instance is, and knows it by its name.
type nameless struct{ error }

// Error implements error.
func (e nameless) Error() string {
	err := e.error
	for {
		var (
			request *url.Error
			socket  *net.OpError
			lookup  *net.DNSError
			address *net.AddrError
		)
		switch {
		case errors.As(err, &request):
			err = request.Err
		case errors.As(err, &socket):
			if inner := (nameless{socket.Err}).Error(); socket.Err != nil {
				return socket.Op + ": " + inner
			}
			return socket.Op
		case errors.As(err, &lookup):
			return "lookup: " + lookup.Err
		case errors.As(err, &address):
			return address.Err
		default:
			return err.Error()
		}
	}
}

// Unwrap keeps what errors.Is and errors.As find.
func (e nameless) Unwrap() error { return e.error }
