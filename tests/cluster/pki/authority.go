// Package pki makes the certificates of one cluster: a certificate authority of its own, and what it signs.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// A cluster lives for minutes or days, never for years; the past hour forgives clocks that were set back.
const (
	validFor  = 365 * 24 * time.Hour
	backdated = time.Hour
)

// Authority signs certificates. Its key stays in the state directory, so that a kubeconfig for
// any user can be made as long as the cluster lives.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// CertPEM is what clients must trust.
	CertPEM []byte
}

// Pair is a certificate with its private key, both in PEM.
type Pair struct{ Cert, Key []byte }

// Request says who a certificate is for. Names make it a server's certificate as well as a client's.
type Request struct {
	CommonName    string
	Organizations []string
	DNSNames      []string
	IPs           []net.IP
}

// NewAuthority makes an authority and keeps it as name.crt and name.key in dir.
func NewAuthority(dir, name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: name},
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := sign(template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	pair, err := encode(der, key)
	if err != nil {
		return nil, err
	}
	if err := pair.Write(dir, name); err != nil {
		return nil, err
	}
	return LoadAuthority(dir, name)
}

// LoadAuthority reads what NewAuthority wrote.
func LoadAuthority(dir, name string) (*Authority, error) {
	certPEM, err := os.ReadFile(filepath.Join(dir, name+".crt"))
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, err
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("%s.crt or %s.key in %s is not PEM", name, name, dir)
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, err
	}
	return &Authority{cert: cert, key: key, CertPEM: certPEM}, nil
}

// Issue signs a new key for the one who is named.
func (a *Authority) Issue(r Request) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: r.CommonName, Organization: r.Organizations},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		DNSNames: r.DNSNames, IPAddresses: r.IPs,
	}
	if len(r.DNSNames)+len(r.IPs) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	der, err := sign(template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return Pair{}, err
	}
	return encode(der, key)
}

// IssueTo is Issue, written to name.crt and name.key in dir.
func (a *Authority) IssueTo(dir, name string, r Request) error {
	pair, err := a.Issue(r)
	if err != nil {
		return err
	}
	return pair.Write(dir, name)
}

// WriteKey makes a lone private key: the one that signs ServiceAccount tokens.
func WriteKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, keyPEM, 0o600)
}

// Write puts the pair into dir as name.crt and name.key.
func (p Pair) Write(dir, name string) error {
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), p.Cert, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".key"), p.Key, 0o600)
}

func sign(template, parent *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-backdated)
	template.NotAfter = time.Now().Add(validFor)
	return x509.CreateCertificate(rand.Reader, template, parent, public, key)
}

func encode(der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: keyPEM}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
