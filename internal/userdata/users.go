package userdata

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// ErrDuplicate means that a user of this name exists.
var ErrDuplicate = errors.New("userdata: user exists")

// ErrUsers means that a tenant has as many users as it may have.
var ErrUsers = errors.New("userdata: too many users")

// usersFile lists the users of a tenant.
const usersFile Path = "users.json"

// Limits on what anybody may add: users of a tenant, and bytes of a name.
const (
	maxUsers    = 1000
	maxUserName = 200
)

// systemPrefix begins the ids of users that ComfyUI reserves for itself.
const systemPrefix = "__"

var notInID = regexp.MustCompile(`[^a-zA-Z0-9\-_]+`)

// Users returns the users of a tenant by id, if it has several.
func (s *Store) Users(ctx context.Context, tenant string) (*pyjson.Object, error) {
	return s.Folder(tenant, "users").readObject(ctx, usersFile, maxSettings)
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
// ErrDuplicate, ErrName, ErrUsers, ErrFull.
func (s *Store) AddUser(ctx context.Context, tenant, name string) (id string, err error) {
	if len(name) > maxUserName {
		return "", ErrName
	}
	f := s.Folder(tenant, "users")
	leave, err := f.turn(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	users, err := f.readObject(ctx, usersFile, maxSettings)
	if err != nil {
		return "", err
	}
	for _, known := range users.All() {
		if known == pyjson.Value(pyjson.String(name)) {
			return "", ErrDuplicate
		}
	}
	if name = strings.TrimSpace(name); len(name) > maxSegment {
		return "", ErrName
	}
	id = notInID.ReplaceAllString(name, "-")
	if name == "" || strings.HasPrefix(name, systemPrefix) || strings.HasPrefix(id, systemPrefix) || len(id) > maxSegment/2 {
		return "", ErrName
	}
	if users.Len() >= maxUsers {
		return "", ErrUsers
	}
	id += "_" + uuid.NewString()
	users.Set(id, pyjson.String(name))
	return id, f.writeObject(ctx, usersFile, maxSettings, users)
}
