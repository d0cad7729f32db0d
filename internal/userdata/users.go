package userdata

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// ErrDuplicate says that there is a user of this name.
var ErrDuplicate = errors.New("userdata: user exists")

// usersFile lists the users of a tenant.
const usersFile Path = "users.json"

// maxUsers bounds the users of a tenant, which anybody may add.
const maxUsers = 10_000

// systemPrefix begins the ids of users that ComfyUI keeps for itself.
const systemPrefix = "__"

var notInID = regexp.MustCompile(`[^a-zA-Z0-9\-_]+`)

// Users are the users of a tenant by id, where one has several.
func (s *Store) Users(ctx context.Context, tenant string) (*pyjson.Object, error) {
	return s.Folder(tenant, "users").readObject(ctx, usersFile)
}

// HasUser reports whether a tenant has a user.
func (s *Store) HasUser(ctx context.Context, tenant, id string) (bool, error) {
	if id == "" || strings.HasPrefix(id, systemPrefix) {
		return false, nil
	}
	users, err := s.Users(ctx, tenant)
	return err == nil && users.Has(id), err
}

// AddUser adds a user and returns the id, which begins with the name. Errors:
// ErrDuplicate, ErrName.
func (s *Store) AddUser(ctx context.Context, tenant, name string) (id string, err error) {
	f := s.Folder(tenant, "users")
	defer f.lock()()
	users, err := f.readObject(ctx, usersFile)
	if err != nil {
		return "", err
	}
	for _, known := range users.All() {
		if known == pyjson.Value(pyjson.String(name)) {
			return "", ErrDuplicate
		}
	}
	name = strings.TrimSpace(name)
	id = notInID.ReplaceAllString(name, "-")
	if name == "" || strings.HasPrefix(name, systemPrefix) || strings.HasPrefix(id, systemPrefix) || len(id) > maxSegment/2 || users.Len() >= maxUsers {
		return "", ErrName
	}
	id += "_" + uuid.NewString()
	users.Set(id, pyjson.String(name))
	return id, f.writeObject(ctx, usersFile, users)
}
