package stream

import "context"

// Hold takes a socket's slot for a connection that is not a socket but is held open like one, such
// as a stream of server-sent events. The connection must end when the returned context does, which
// is when the caller's ends or Close is called. release must be called then. The errors are
// ErrFull, ErrTenantFull and ErrClosed.
func (s *Streams) Hold(ctx context.Context, id Ident) (held context.Context, release func(), err error) {
	party := partyOf(id)
	if err := s.reserve(party); err != nil {
		return nil, nil, err
	}
	held, end := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, end)
	return held, func() {
		stop()
		end()
		s.release(party)
	}, nil
}
