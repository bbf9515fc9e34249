import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerExtensionsValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/** Takes tokens as Amazon MSK does: addresses signed by Signature Version 4, which it checks with the one secret that it knows. */
public class SignedAddresses implements AuthenticateCallbackHandler {
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC);
    private static final String REGION = System.getProperty("signed.region");
    private static final String ACCESS_KEY = System.getProperty("signed.accessKey");
    private static final String SECRET_KEY = System.getProperty("signed.secretKey");
    private static final String USER = System.getProperty("signed.user");

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {}

    @Override
    public void handle(Callback[] callbacks) {
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerValidatorCallback validator) {
                try {
                    validator.token(token(validator.tokenValue()));
                } catch (Exception problem) {
                    System.out.println("SignedAddresses refused a token: " + problem.getMessage());
                    validator.error("invalid_token: " + problem.getMessage(), null, null);
                }
            } else if (callback instanceof OAuthBearerExtensionsValidatorCallback extensions) {
                extensions.inputExtensions().map().keySet().forEach(extensions::valid);
            }
        }
    }

    private OAuthBearerToken token(String value) throws Exception {
        URI address = URI.create(new String(Base64.getUrlDecoder().decode(value), StandardCharsets.US_ASCII));
        TreeMap<String, String> query = new TreeMap<>();
        for (String pair : address.getRawQuery().split("&")) {
            String[] parts = pair.split("=", 2);
            query.put(parts[0], parts[1]);
        }
        String signature = query.remove("X-Amz-Signature");
        query.remove("User-Agent");  // joins the address after it is signed
        String time = query.get("X-Amz-Date");
        String scope = time.substring(0, 8) + "/" + REGION + "/kafka-cluster/aws4_request";
        check("address", address.getScheme() + "://" + address.getHost() + address.getPath(), "https://kafka." + REGION + ".amazonaws.com/");
        check("action", query.get("Action"), "kafka-cluster%3AConnect");
        check("algorithm", query.get("X-Amz-Algorithm"), "AWS4-HMAC-SHA256");
        check("credential", query.get("X-Amz-Credential"), (ACCESS_KEY + "/" + scope).replace("/", "%2F"));
        check("headers", query.get("X-Amz-SignedHeaders"), "host");
        String canonical = "GET\n/\n" + query.entrySet().stream().map(Object::toString).collect(Collectors.joining("&"))
            + "\nhost:" + address.getHost() + "\n\nhost\n" + sha256("");
        String toSign = "AWS4-HMAC-SHA256\n" + time + "\n" + scope + "\n" + sha256(canonical);
        byte[] key = ("AWS4" + SECRET_KEY).getBytes(StandardCharsets.UTF_8);
        for (String part : scope.split("/")) {
            key = hmac(key, part);
        }
        check("signature", signature, HexFormat.of().formatHex(hmac(key, toSign)));
        Instant signed = Instant.from(TIME.parse(time));
        Instant expiry = signed.plusSeconds(Long.parseLong(query.get("X-Amz-Expires")));
        if (Instant.now().isAfter(expiry) || expiry.isAfter(signed.plusSeconds(900))) {
            throw new IllegalArgumentException("expiry: " + expiry);
        }
        return new SignedToken(value, expiry.toEpochMilli(), USER);
    }

    private record SignedToken(String value, long lifetimeMs, String principalName) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public Long startTimeMs() {
            return null;
        }
    }

    private static void check(String what, String found, String expected) {
        if (!expected.equals(found)) {
            throw new IllegalArgumentException(what);
        }
    }

    private static String sha256(String text) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8)));
    }

    private static byte[] hmac(byte[] key, String text) throws Exception {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        return mac.doFinal(text.getBytes(StandardCharsets.UTF_8));
    }

    @Override
    public void close() {}
}
