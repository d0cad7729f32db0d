package files

import (
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// objectStoreCredentials are for the fake object store, which accepts any.
var objectStoreCredentials = map[string]string{
	"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true",
	"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "AWS_REGION": "",
}

// objectStore returns the location of a new bucket, which is reached through the
// real driver.
func objectStore(t testing.TB) string {
	t.Helper()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("bucket"))
	srv := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(srv.Close)
	return "s3://bucket?endpoint=" + srv.URL
}

// eachStore runs a test on every kind of Redis with a folder, and with an
// object store.
func eachStore(t *testing.T, run func(t *testing.T, s *Store)) {
	t.Helper()
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) { run(t, newStore(t, db)) })
	t.Run("object store", func(t *testing.T) {
		t.Parallel()
		run(t, newStoreAt(t, redistest.Embedded(t), objectStore(t)+"&prefix=hub"))
	})
}

// newStore returns a store in a folder of the test.
func newStore(t testing.TB, db *redis.DB) *Store {
	t.Helper()
	return newStoreAt(t, db, t.TempDir())
}

func newStoreAt(t testing.TB, db *redis.DB, location string) *Store {
	t.Helper()
	storage := must(OpenStorage(t.Context(), location))
	t.Cleanup(func() { _ = storage.Close() })
	return New(db, storage, Options{SpoolDir: t.TempDir()})
}
