// Package keda tells KEDA how many instances of a class there should be: it is an external scaler, the
// service of externalscaler.proto.
package keda

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/comfyhub/comfyhub/internal/scale"
)

// metricName is that of the number, for each class.
const metricName = "instances-wanted"

const (
	// pushEvery is how often a stream looks whether there is work.
	pushEvery = 5 * time.Second
	// The bounds of what one cluster needs: a connection for each of KEDA's operators, and two calls
	// for each class.
	maxConnections = 16
	maxStreams     = 128
	maxRequest     = 64 << 10
	idleFor        = 5 * time.Minute
	connectFor     = 10 * time.Second
)

// Source says how the classes are doing.
type Source func(ctx context.Context) ([]scale.Status, error)

// Server is the service. It is safe for concurrent use.
type Server struct {
	grpc   *grpc.Server
	source Source
	ended  context.Context
	end    context.CancelFunc
}

// New returns a server. With a TLS configuration it asks what that says of its clients; without, it
// takes everybody.
func New(source Source, secure *tls.Config) *Server {
	options := []grpc.ServerOption{
		grpc.ForceServerCodec(codec{}), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(maxRequest), grpc.ConnectionTimeout(connectFor),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleFor}),
	}
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	s := &Server{grpc: grpc.NewServer(options...), source: source}
	s.ended, s.end = context.WithCancel(context.Background())
	s.grpc.RegisterService(&description, s)
	return s
}

// Serve serves a listener until the server is closed.
func (s *Server) Serve(l net.Listener) error {
	return s.grpc.Serve(netutil.LimitListener(l, maxConnections))
}

// Close ends all calls.
func (s *Server) Close() {
	s.end()
	s.grpc.Stop()
}

// service is what a handler is given.
type service interface {
	wanted(ctx context.Context, object scaledObject) (int, error)
}

// description is externalscaler.ExternalScaler. What it lacks, StreamMetricSpec, is answered with
// Unimplemented, which KEDA takes for no.
var description = grpc.ServiceDesc{
	ServiceName: "externalscaler.ExternalScaler",
	HandlerType: (*service)(nil),
	Methods: []grpc.MethodDesc{
		{MethodName: "IsActive", Handler: unary(func(ctx context.Context, s *Server, r *scaledObject) (any, error) {
			n, err := s.wanted(ctx, *r)
			return active(n > 0), err
		})},
		{MethodName: "GetMetricSpec", Handler: unary(func(ctx context.Context, s *Server, r *scaledObject) (any, error) {
			_, err := s.wanted(ctx, *r)
			return metric(1), err
		})},
		{MethodName: "GetMetrics", Handler: unary(func(ctx context.Context, s *Server, r *metricsRequest) (any, error) {
			n, err := s.wanted(ctx, r.object)
			return metric(n), err
		})},
	},
	Streams: []grpc.StreamDesc{{StreamName: "StreamIsActive", ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
		var object scaledObject
		if err := stream.RecvMsg(&object); err != nil {
			return err
		}
		return srv.(*Server).push(stream, object)
	}}},
}

// unary makes the handler of a method.
func unary[R any](answer func(ctx context.Context, s *Server, r *R) (any, error)) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		r := new(R)
		if err := decode(r); err != nil {
			return nil, err
		}
		return answer(ctx, srv.(*Server), r)
	}
}

// wanted is how many instances of a class there should be.
func (s *Server) wanted(ctx context.Context, object scaledObject) (int, error) {
	if object.class == "" {
		return 0, status.Error(codes.InvalidArgument, "the trigger's metadata has no class")
	}
	all, err := s.source(ctx)
	if err != nil {
		return 0, status.Error(codes.Unavailable, "the hub cannot say how many are wanted: "+err.Error())
	}
	n := slices.IndexFunc(all, func(c scale.Status) bool { return c.Class == object.class })
	if n < 0 {
		return 0, status.Errorf(codes.NotFound, "the hub has no class %.64q", object.class)
	}
	return all[n].Wanted, nil
}

// push says whether any instance is wanted: at once, and when that changes.
func (s *Server) push(stream grpc.ServerStream, object scaledObject) error {
	tick := time.NewTicker(pushEvery)
	defer tick.Stop()
	for said, first := false, true; ; first = false {
		n, err := s.wanted(stream.Context(), object)
		if err != nil {
			return err
		}
		if first || said != (n > 0) {
			said = n > 0
			if err := stream.SendMsg(active(said)); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return nil
		case <-s.ended.Done():
			return nil
		}
	}
}
