package keda

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// raw sends and receives messages as they are.
type raw struct{}

// Name implements encoding.Codec.
func (raw) Name() string { return "proto" }

// Marshal implements encoding.Codec.
func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

// Unmarshal implements encoding.Codec.
func (raw) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte{}, b...)
	return nil
}

func object(class string) string {
	return "\n\x01n\x12\x02ns\x1a\r\n\x05class\x12\x04" + class + "\x1a\x12\n\rscalerAddress\x12\x01x"
}

func metrics(object string) string {
	return "\n" + string(rune(len(object))) + object + "\x12\x10instances-wanted"
}

func method(name string) string { return "/externalscaler.ExternalScaler/" + name }

func failing(context.Context) ([]scale.Status, error) { return nil, errors.New("redis is away") }

// ask calls a method, and returns the answer.
func ask(t *testing.T, c *grpc.ClientConn, name, request string) (string, error) {
	in, out := []byte(request), []byte{}
	err := c.Invoke(t.Context(), method(name), &in, &out)
	return string(out), err
}

func serve(t *testing.T, source Source) *grpc.ClientConn {
	s := New(source, nil)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	c, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		s.Close()
		<-done
	})
	return c
}

// The requests and answers here are what the Go code that KEDA generates from externalscaler.proto has
// written and read.
func TestExternalScaler(t *testing.T) {
	c := serve(t, func(context.Context) ([]scale.Status, error) {
		return []scale.Status{{Class: "a10g", Wanted: 3}, {Class: "idle"}}, nil
	})
	answer, err := ask(t, c, "IsActive", object("a10g"))
	require.NoError(t, err)
	require.Equal(t, "\b\x01", answer)
	answer, err = ask(t, c, "GetMetrics", metrics(object("a10g")))
	require.NoError(t, err)
	require.Equal(t, "\n\x1d\n\x10instances-wanted\x10\x03\x19\x00\x00\x00\x00\x00\x00\b@", answer)
	answer, err = ask(t, c, "GetMetricSpec", object("a10g"))
	require.NoError(t, err)
	require.Equal(t, "\n\x1d\n\x10instances-wanted\x10\x01\x19\x00\x00\x00\x00\x00\x00\xf0?", answer)
	answer, err = ask(t, c, "IsActive", object("idle"))
	require.NoError(t, err)
	require.Empty(t, answer)

	stream, err := c.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, method("StreamIsActive"))
	require.NoError(t, err)
	in, out := []byte(object("a10g")), []byte{}
	require.NoError(t, stream.SendMsg(&in))
	require.NoError(t, stream.CloseSend())
	require.NoError(t, stream.RecvMsg(&out))
	require.Equal(t, "\b\x01", string(out))

	for request, code := range map[string]codes.Code{object("none"): codes.NotFound, "": codes.InvalidArgument, "\n\x01n": codes.InvalidArgument, "\x1a\xff": codes.Internal} {
		_, err = ask(t, c, "IsActive", request)
		require.Equal(t, code, status.Code(err), "%q: %v", request, err)
	}
	_, err = ask(t, c, "StreamMetricSpec", object("a10g"))
	require.Equal(t, codes.Unimplemented, status.Code(err))
}

func TestHubThatCannotSay(t *testing.T) {
	c := serve(t, failing)
	_, err := ask(t, c, "GetMetrics", metrics(object("a10g")))
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.ErrorContains(t, err, "redis is away")
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte(metrics(object("a10g"))))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_ = new(metricsRequest).unmarshal(b)
		_ = new(scaledObject).unmarshal(b)
	})
}
