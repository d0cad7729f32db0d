package files

import (
	"crypto/rand"
	"fmt"
	"io"
	"testing"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Memory must not grow with the upload.
func BenchmarkUpload(b *testing.B) {
	for _, size := range []int64{1 << 20, 32 << 20} {
		b.Run(fmt.Sprintf("%dMiB", size>>20), func(b *testing.B) {
			s := newStore(b, redistest.Embedded(b))
			b.ReportAllocs()
			b.SetBytes(size)
			for b.Loop() {
				_, err := s.Upload(b.Context(), tenant, input("a.bin"), true, io.LimitReader(rand.Reader, size))
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAllot(b *testing.B) {
	for name, open := range map[string]func() *redis.DB{
		"embedded": func() *redis.DB { return redistest.Embedded(b) },
		"server":   func() *redis.DB { return redistest.Open(b, redistest.Start(b).URL()) },
	} {
		b.Run(name, func(b *testing.B) {
			s := newStore(b, open())
			for n := 0; b.Loop(); n++ {
				// The second instance is always one behind.
				_, err := s.AllotOutput(b.Context(), tenant, made(fmt.Sprint(n%2), fmt.Sprintf("x_%05d_.png", n/2+1), fmt.Sprint(n)))
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
