import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

/**
 * What Avro's Java library says. Each line of the input is a question, and is answered by one line:
 *
 * <pre>
 * print TAB schema                the schema as Java prints it, or ! and what is wrong with it
 * reads TAB reader TAB writer     COMPATIBLE, INCOMPATIBLE, or ! and what went wrong
 * </pre>
 */
public class Judge {
    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] asked = line.split("\t", -1);
            String answer;
            try {
                Schema first = new Schema.Parser().parse(asked[1]);
                answer = asked[0].equals("print")
                    ? first.toString()
                    : SchemaCompatibility.checkReaderWriterCompatibility(
                        first, new Schema.Parser().parse(asked[2])).getType().toString();
            } catch (RuntimeException error) {
                answer = "!" + String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
            }
            System.out.println(answer);
        }
    }
}
