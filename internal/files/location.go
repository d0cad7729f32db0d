package files

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
)

// s3Scheme is that of an object store; package internal/files/s3 links its driver.
const s3Scheme = "s3"

// CheckLocation says what is wrong with the location of a storage, as far as that shows without
// opening it. The error does not repeat what may be secret.
func CheckLocation(location string) error {
	dir, err := folderOf(location)
	if err != nil || dir != "" {
		return err
	}
	u, err := url.Parse(location)
	if err != nil {
		return errNoURL
	}
	if u.Scheme != s3Scheme {
		return errScheme
	}
	_, err = bucketURL(u)
	return err
}

var errScheme = errors.New("neither a folder nor a file:// or s3:// URL")

// errNoURL stands in for the error of net/url, which repeats the URL.
var errNoURL = errors.New("not a URL")

// folderOf returns the folder that a location names, "" for an object store.
func folderOf(location string) (string, error) {
	if location == "" {
		return "", errors.New("no location is given")
	}
	if !strings.Contains(location, "://") {
		return location, nil
	}
	u, err := url.Parse(location)
	if err != nil {
		return "", errNoURL
	}
	if u.Scheme != fileblob.Scheme {
		return "", nil
	}
	if (u.Host != "" && u.Host != ".") || u.Path == "" || u.RawQuery != "" {
		return "", errors.New("not of the form file:///folder")
	}
	if u.Host == "." {
		return filepath.FromSlash("." + u.Path), nil
	}
	return filepath.FromSlash(u.Path), nil
}

// bucketURL completes the URL of a bucket,
//
//	s3://bucket?endpoint=https://minio:9000&region=us-east-1&prefix=comfyhub
//
// with what stores other than Amazon's need when they are named by endpoint. Credentials come from
// the usual AWS environment, never from the URL, which is shown in configurations.
func bucketURL(u *url.URL) (string, error) {
	q := u.Query()
	switch {
	case u.User != nil:
		return "", errors.New("credentials belong in the environment (AWS_ACCESS_KEY_ID and so on), not in the URL")
	case u.Host == "":
		return "", errors.New("the URL names no bucket")
	case u.Path != "" && u.Path != "/" || u.Fragment != "":
		return "", errors.New("a folder in the bucket is given as ?prefix=")
	}
	if prefix := strings.Trim(q.Get("prefix"), "/"); prefix != "" {
		q.Set("prefix", prefix+"/")
	} else {
		q.Del("prefix")
	}
	if endpoint := q.Get("endpoint"); endpoint != "" {
		e, err := url.Parse(endpoint)
		if err != nil || e.Host == "" || e.Scheme != "http" && e.Scheme != "https" {
			return "", errors.New("endpoint is not of the form https://host:port")
		}
		// Few other stores give each bucket its own host name, and not all know the checksums that
		// the AWS SDK sends by default.
		preset(q, "use_path_style", "true")
		preset(q, "request_checksum_calculation", "when_required")
		preset(q, "response_checksum_validation", "when_required")
		if os.Getenv("AWS_REGION") == "" && os.Getenv("AWS_DEFAULT_REGION") == "" {
			// Most of them have no regions, but a signature names one.
			preset(q, "region", "us-east-1")
		}
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, RawQuery: q.Encode()}).String(), nil
}

func preset(q url.Values, name, value string) {
	if !q.Has(name) {
		q.Set(name, value)
	}
}

// openBucket opens the object store of a URL, without contacting it.
func openBucket(ctx context.Context, location string) (*blob.Bucket, error) {
	u, err := url.Parse(location)
	if err != nil {
		return nil, errNoURL
	}
	if u.Scheme != s3Scheme {
		return nil, errScheme
	}
	if location, err = bucketURL(u); err != nil {
		return nil, err
	}
	return blob.OpenBucket(ctx, location)
}
